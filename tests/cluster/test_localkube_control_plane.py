"""localkube's control plane and simulated nodes, with the real programs."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import localkube
from localkube import build, cluster, process
from localkube.cluster import Options
from localkube.errors import ComponentDiedError, LocalKubeError
from tests.cluster.localkube_machine import own_home, require_machine
from tests.machine import unavailable

ROOT = Path(localkube.__file__).parents[1]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    require_machine(node=False)
    with own_home(tmp_path_factory.mktemp("lk")) as folder:
        yield folder


@pytest.fixture(scope="module")
def one(home):
    """A cluster with simulated nodes and a stage of the test's own, shared by the tests that leave it as it is."""
    stages = home.parent / "stages.yaml"
    stages.write_text(SLOW_START)
    options = Options(name="one", simulated_nodes=2, stages=(str(stages),))
    return cluster.up(options, print)


SLOW_START = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: crash}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchAnnotations: {qcs.test/outcome: crash}
    matchExpressions:
      - {key: .status.phase, operator: In, values: [Pending]}
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
  weight: 1
  next:
    statusTemplate: |
      phase: Failed
      reason: FromTheStageOfTheTest
"""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chain}
spec:
  replicas: 2
  selector: {matchLabels: {app: chain}}
  template:
    metadata:
      labels: {app: chain}
      annotations: {qcs.test/message.probe: '{"n": 784, "note": "quoted \\"twice\\""}', qcs.test/message: for all}
    spec:
      runtimeClassName: nvidia
      initContainers:
        - {name: probe, image: engine}
        - {name: second, image: engine}
        - {name: cache-server, image: engine, restartPolicy: Always}
      containers:
        - {name: engine, image: engine, resources: {limits: {nvidia.com/gpu: 8}}}
"""


def until(condition, timeout_s=60.0, what="the condition"):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {timeout_s:.0f} s"
        time.sleep(0.1)
    return found


def kubectl(on, *arguments, stdin=None):
    ran = on.kubectl(*arguments, stdin=stdin)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def listening(port, address="127.0.0.1"):
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def watching(on):
    """Whether kubectl's watch of pods has reached the API server, by the server's own metrics."""
    text = kubectl(on, "get", "--raw", "/metrics")
    open_watches = re.findall(r"^apiserver_longrunning_requests\{(.*)\} (\d+)$", text, re.MULTILINE)
    return any('resource="pods"' in labels and 'scope="namespace"' in labels and int(n) for labels, n in open_watches)


def ports_of(on):
    return json.loads((on.folder / "cluster.json").read_text())["ports"]


def test_simulated_pods_run_with_messages_sidecars_and_gpus(one):
    kubectl(one, "apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl(one, "rollout", "status", "deployment/chain", "--timeout=60s")
    pods = json.loads(kubectl(one, "get", "pods", "-l", "app=chain", "-o", "json"))["items"]
    assert {p["spec"]["nodeName"] for p in pods} == {"simulated-0", "simulated-1"}, "8 GPUs each: one pod a node"
    probe, second, sidecar = pods[0]["status"]["initContainerStatuses"]
    assert json.loads(probe["state"]["terminated"]["message"]) == {"n": 784, "note": 'quoted "twice"'}
    assert second["state"]["terminated"]["message"] == "for all"
    assert sidecar["ready"]
    assert sidecar["started"]
    assert "running" in sidecar["state"]
    assert len({p["status"]["podIP"] for p in pods}) == 2
    kubectl(one, "delete", "deployment", "chain")
    until(lambda: not json.loads(kubectl(one, "get", "pods", "-l", "app=chain", "-o", "json"))["items"], what="no pods")


def test_without_annotation_the_message_says_that_nothing_ran_and_jobs_end(one):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "initContainers": [{"name": "i", "image": "x"}],
                    "containers": [{"name": "c", "image": "x"}],
                }
            }
        },
    }
    kubectl(one, "apply", "-f", "-", stdin=json.dumps(job))
    kubectl(one, "wait", "--for=condition=Complete", "job/j", "--timeout=60s")
    pod = json.loads(kubectl(one, "get", "pods", "-l", "job-name=j", "-o", "json"))["items"][0]
    terminated = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]
    assert terminated["message"] == "simulated by localkube: nothing ran"
    kubectl(one, "delete", "job", "j")


def test_a_stage_of_ones_own_wins(one):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "crashing", "annotations": {"qcs.test/outcome": "crash"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    kubectl(one, "apply", "-f", "-", stdin=json.dumps(pod))
    until(lambda: kubectl(one, "get", "pod", "crashing", "-o=jsonpath={.status.reason}") == "FromTheStageOfTheTest")
    kubectl(one, "delete", "pod", "crashing")


def test_a_node_of_ones_own_with_other_capacity(one):
    one.add_simulated_node("big", gpus=2, labels={"zone": "a"}, annotations={"localkube/memory": "96Gi"})
    found = until(lambda: one.api.get("/api/v1/nodes/big")["status"].get("capacity"))
    assert (found["nvidia.com/gpu"], found["memory"]) == ("2", "96Gi")
    one.set_node_capacity({"example.com/thing": 3}, "big")
    assert one.api.get("/api/v1/nodes/big")["status"]["allocatable"]["example.com/thing"] == "3"
    one.api.delete("/api/v1/nodes/big")
    with pytest.raises(LocalKubeError, match=r"Cluster one has no real node\. Name a simulated one"):
        one.set_node_capacity({"example.com/thing": 3})


def test_the_server_reports_its_release(one):
    assert one.api.get("/version")["gitVersion"].startswith("v1.36.")


def test_a_second_up_changes_nothing_and_other_options_are_refused(one, monkeypatch):
    before = one.components()
    said = []
    monkeypatch.setenv("GOFLAGS", "-mod=this-would-fail")  # nothing is built
    again = cluster.up(one.options, said.append)
    assert said == ["cluster one is up already"]
    assert again.components() == before
    with pytest.raises(LocalKubeError, match=r"simulated_nodes \(0, not 2\).* Run `down` first, or choose another"):
        cluster.up(Options(name="one", stages=one.options.stages))


def test_a_dead_component_is_shown_and_repaired_by_the_next_up(one):
    former = one.components()
    dead = next(c for c in former if c.name == "kube-scheduler")
    os.kill(dead.pid, signal.SIGKILL)
    until(lambda: not one.healthy())
    assert [c.name for c in one.components() if not c.running] == ["kube-scheduler"]
    said = []
    repaired = cluster.up(one.options, said.append)
    assert said[0] == "repairing cluster one: kube-scheduler does not run"
    assert repaired.healthy()
    changed = {a.name for a, b in zip(former, repaired.components(), strict=True) if a.pid != b.pid}
    assert changed == {"kube-scheduler"}


def test_two_clusters_side_by_side_and_down_leaves_nothing(one):
    two = cluster.up(Options(name="two"), print)
    assert not set(ports_of(one).values()) & set(ports_of(two).values())
    assert two.server != one.server
    assert two.api.get("/api/v1/nodes")["items"] == []
    folder, ports = two.folder, ports_of(two)
    assert len(process.marked(folder)) == len(two.components()) == 4
    assert [p for p in ports.values() if listening(p)]
    argv = [cluster.kubectl_path(), "--kubeconfig", str(two.kubeconfig), "get", "pods", "--watch"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as watch:
        until(lambda: watching(two), what="a watch being open")
        began = time.monotonic()
        two.down()
        assert time.monotonic() - began < 20, "an API server waits up to a minute for open watches"
        watch.terminate()
    assert process.marked(folder) == []
    assert not folder.exists()
    assert [p for p in ports.values() if listening(p)] == []
    assert cluster.find("two") is None
    assert one.healthy(), "the other one goes on"
    assert cluster.down("two") is False


def test_a_component_that_dies_shows_its_log_and_everything_is_taken_down(home, tmp_path, monkeypatch):
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho 'E0101 unknown flag: --from-the-future' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    said = []
    with pytest.raises(ComponentDiedError) as caught:
        cluster.up(Options(name="broken"), said.append)
    assert caught.value.component == "kube-apiserver"
    assert "  | E0101 unknown flag: --from-the-future" in str(caught.value)
    assert said[-1] == "taking down what was started of broken"
    assert any(line.startswith("etcd: ready") for line in said), "something was running by then"
    assert process.marked(home / "broken") == []
    assert not (home / "broken").exists()


def test_kubebuilder_assets_come_first_and_the_rest_is_localkubes_own(home, tmp_path, monkeypatch):
    (tmp_path / "etcd").symlink_to(build.find_binaries(["etcd"], "1.36", print)["etcd"])
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    found = build.find_binaries(["etcd", "kube-apiserver"], "1.36", print)
    assert found["etcd"] == tmp_path / "etcd"
    assert found["kube-apiserver"].is_relative_to(build.bin_home())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_up_leaves_nothing_after_down(home, number):
    folder = home / "cut"
    running = subprocess.Popen(
        [sys.executable, "-m", "localkube", "up", "--name", "cut"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    until(lambda: len(process.marked(folder)) == 2, what="etcd and the API server running")
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert running.returncode == -number
        assert process.marked(folder), "nobody could take it down"
        assert cluster.down("cut") is True
    else:
        assert running.returncode == 130
        assert said.splitlines()[-1] == f"localkube: ended by {number.name}"
    assert process.marked(folder) == []
    assert not folder.exists()


def test_up_repairs_an_interrupted_up(home):
    folder = home / "cut"
    running = subprocess.Popen(
        [sys.executable, "-m", "localkube", "up", "--name", "cut"], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    until(lambda: process.marked(folder), what="etcd running")
    running.kill()
    running.wait()
    left = process.marked(folder)
    said = []
    made = cluster.up(Options(name="cut"), said.append)
    assert said[0] == "removing what an interrupted `up` of cut left"
    assert made.healthy()
    assert not [p for p in left if p.alive()]
    made.down()


@pytest.mark.skipif(os.geteuid() != 0, reason="without root every other test here shows it already")
def test_no_root_is_needed(tmp_path_factory):
    require_machine(node=False)
    if shutil.which("setpriv") is None:
        unavailable("setpriv is not installed (Debian: util-linux)")
    nobody = 65534
    place = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    try:
        names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
        (place / "bin").mkdir()
        for name, binary in build.find_binaries(names, "1.36", print).items():
            _link_or_copy(binary, place / "bin" / name)
        shutil.copytree(ROOT / "localkube", place / "localkube")
        for library in ("typer", "rich", "yaml"):
            _copy_package(library, place)
        os.chown(place, nobody, nobody)
        environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin",
            "HOME": str(place),
            "LOCALKUBE_HOME": str(place / "home"),
            "KUBEBUILDER_ASSETS": str(place / "bin"),
            "PYTHONPATH": str(place),
        }
        code = (
            "import os; from localkube import cluster; assert os.geteuid() == 65534\n"
            "c = cluster.up(cluster.Options(name='plain'), print)\n"
            "assert c.healthy(); print(c.api.get('/api/v1/namespaces/default')['metadata']['name']); c.down()\n"
        )
        python = shutil.which("python3", path="/usr/bin")
        if python is None:
            unavailable("no Python in /usr/bin that other users may run (Debian: python3)")
        argv = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups", python, "-c", code]
        ran = subprocess.run(argv, cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines()[-1] == "default"
        assert process.marked(place / "home" / "plain") == []
        assert not (place / "home").exists()
    finally:
        shutil.rmtree(place)


def _link_or_copy(source, target):
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def _copy_package(name, place):
    module = __import__(name)
    shutil.copytree(Path(module.__file__).parent, place / name, ignore=shutil.ignore_patterns("*.so"))
