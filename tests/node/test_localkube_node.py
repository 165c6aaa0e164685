"""localkube's real node: kubelet, containerd, kube-proxy and pods of them. Needs root."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import localkube
from localkube import cgroups, cluster, hostnet, paths, process
from localkube.cluster import Options
from localkube.errors import LocalKubeError
from localkube.process import Process
from tests.cluster import localkube_images as images
from tests.cluster.localkube_machine import own_home, require_machine

ROOT = Path(localkube.__file__).parents[1]
TOOL = "localhost/tool:1"


@pytest.fixture(scope="module")
def before():
    require_machine(node=True)
    return host()


@pytest.fixture(scope="module")
def home(before, tmp_path_factory):
    with own_home(tmp_path_factory.mktemp("lk")) as folder:
        yield folder


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    tool = images.compile_static(Path(images.__file__).with_name("localkube_tool.c").read_text(), folder / "tool")
    pause = images.write_archive(folder / "pause.tar", "localhost/pause:1", tool)
    return pause, images.write_archive(folder / "tool.tar", TOOL, tool)


@pytest.fixture(scope="module")
def real(home, archives):
    pause, tool = archives
    made = cluster.up(Options(name="real", node=True, simulated_nodes=1, gpus=2, pause_archive=str(pause)), print)
    made.load_image(tool)
    return made


def test_an_image_that_is_there_is_not_imported_again(real, archives):
    said = []
    real.load_image(archives[1], said.append)
    assert any("already there" in line for line in said)


def host():
    """What clusters change on the host together; None while one of somebody else runs."""
    if paths.RUNTIME.exists():
        return None
    return {
        "mount points": {p: Path(p).exists() for p in hostnet.MOUNT_POINTS},
        "sysctls": {k: Path("/proc/sys", k).read_text() for k in hostnet.SYSCTLS if Path("/proc/sys", k).exists()},
    }


def traces(folder, block):
    """What one cluster with a real node has on the machine outside its namespaces."""
    mountinfo = Path("/proc/self/mountinfo").read_text()
    networks = (f"dev {block.link}", block.pods, block.services, block.host)
    routes = output("ip", "route", "show", "table", "all").splitlines()
    groups = [mount / block.link for mount in cgroups.hierarchies(mountinfo)]
    return {
        "processes": process.marked(folder),
        "folder": [folder] if folder.exists() else [],
        "links": [name for name in (block.link,) if Path("/sys/class/net", name).exists()],
        "tables": [line for line in output("nft", "list", "tables").splitlines() if line.endswith(f" {block.table}")],
        "routes": [route for route in routes if any(network in route for network in networks)],
        "cgroups": [group for group in groups if group.exists()],
        "mounts": [line for line in mountinfo.splitlines() if str(folder) in line],
        "register": [slot for slot in range(hostnet.SLOTS) if hostnet.owner(slot) == folder],
    }


def assert_gone(*clusters, before):
    for folder, block in clusters:
        found = traces(folder, block)
        assert not any(found.values()), found
    if before is not None and not paths.RUNTIME.exists():
        assert host() == before


def output(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def until(condition, timeout_s=90.0, what="the condition"):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {timeout_s:.0f} s"
        time.sleep(0.1)
    return found


def kubectl(on, *arguments, stdin=None):
    ran = on.kubectl(*arguments, stdin=stdin)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def container(name, *args, **more):
    return {"name": name, "image": TOOL, "imagePullPolicy": "Never", "args": list(args), **more}


def apply_pod(on, name, containers, **spec):
    metadata = {"name": name, "labels": {"app": name}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}
    pod["spec"].setdefault("terminationGracePeriodSeconds", 0)
    kubectl(on, "apply", "-f", "-", stdin=json.dumps(pod))


def ask(address, port):
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            return connection.makefile().read()
    except OSError:
        return ""


@pytest.fixture(scope="module")
def serving(real):
    """A pod with an ordinary init container, a sidecar and an engine that holds a GPU, behind a Service."""
    once = container("probe", "report", '{"n": 784}', resources={"limits": {"nvidia.com/gpu": 2}})
    sidecar = container("sidecar", "serve", "9000", restartPolicy="Always")
    engine = container(
        "engine",
        "serve",
        "8000",
        resources={"limits": {"nvidia.com/gpu": 2}},
        readinessProbe={"tcpSocket": {"port": 8000}, "periodSeconds": 1},
        securityContext={"readOnlyRootFilesystem": True, "runAsNonRoot": True},
    )
    hardened = {"seccompProfile": {"type": "RuntimeDefault"}}
    apply_pod(
        real, "serving", [engine], initContainers=[once, sidecar], runtimeClassName="nvidia", securityContext=hardened
    )
    ports = [{"port": 80, "targetPort": 8000}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "serving"}}
    service["spec"] = {"selector": {"app": "serving"}, "ports": ports}
    kubectl(real, "apply", "-f", "-", stdin=json.dumps(service))
    kubectl(real, "wait", "--for=condition=Ready", "pod/serving", "--timeout=90s")
    return json.loads(kubectl(real, "get", "pod", "serving", "-o", "json"))


def test_a_real_pod_runs_with_init_container_sidecar_and_gpus(real, serving):
    assert serving["spec"]["nodeName"] == real.node_name == "real-node"
    probe, sidecar = serving["status"]["initContainerStatuses"]
    assert probe["state"]["terminated"]["message"] == '{"n": 784}'
    assert sidecar["ready"]
    assert "serving on 8000" in kubectl(real, "logs", "serving", "-c", "engine")
    pods = list(real.logs.glob("pods/default_serving_*/engine/0.log"))
    assert len(pods) == 1, "container logs are kept below the cluster's logs"


def test_exec_reaches_the_container(real, serving):
    ran = real.kubectl("exec", "serving", "-c", "engine", "--", "/run", "fail", "7")
    assert ran.returncode == 7
    assert "failing on purpose" in ran.stderr


def test_a_service_is_reached_from_the_host_and_from_pods(real, serving):
    address = real.api.get("/api/v1/namespaces/default/services/serving")["spec"]["clusterIP"]
    assert until(lambda: ask(address, 80), what="the Service answering the host") == "hello from serving\n"
    assert ask(serving["status"]["podIP"], 9000) == "hello from serving\n", "pod addresses are routed as well"
    apply_pod(real, "caller", [container("c", "connect")], restartPolicy="Never")
    until(lambda: phase(real, "caller") in {"Succeeded", "Failed"}, what="the caller ending")
    assert kubectl(real, "logs", "caller") == "reached\n", "the API server's ClusterIP from a pod"


def phase(on, name):
    return kubectl(on, "get", "pod", name, "-o=jsonpath={.status.phase}")


def test_pods_do_not_land_on_simulated_nodes_unless_they_tolerate_them(real, serving):
    apply_pod(real, "no-room", [container("c", resources={"limits": {"nvidia.com/gpu": 2}})])
    told = until(lambda: kubectl(real, "get", "pod", "no-room", "-o=jsonpath={.status.conditions[0].message}"))
    assert "1 Insufficient nvidia.com/gpu" in told
    assert "untolerated taint" in told
    tolerations = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
    apply_pod(
        real,
        "simulated",
        [container("c", resources={"limits": {"nvidia.com/gpu": 8}})],
        tolerations=tolerations,
        initContainers=[container("i")],
    )
    kubectl(real, "wait", "--for=condition=Ready", "pod/simulated", "--timeout=60s")
    assert json.loads(kubectl(real, "get", "pod", "simulated", "-o", "json"))["spec"]["nodeName"] == "simulated-0"


def test_fake_gpus_survive_the_kubelets_own_status_updates_and_its_restart(real, serving):
    def heartbeat():
        status = real.api.get(f"/api/v1/nodes/{real.node_name}")["status"]
        return next(c["lastHeartbeatTime"] for c in status["conditions"] if c["type"] == "Ready"), status

    first, _ = heartbeat()
    until(lambda: heartbeat()[0] != first, timeout_s=120, what="the kubelet updating its node")
    assert gpus(heartbeat()[1]) == ("2", "2")
    for dead in [c for c in real.components() if c.name in {"kubelet", "containerd"}]:
        os.kill(dead.pid, signal.SIGKILL)
    until(lambda: [c.name for c in real.components() if not c.running] == ["containerd", "kubelet"])
    assert cluster.up(real.options, print).healthy()
    first, _ = heartbeat()
    assert gpus(heartbeat()[1]) == ("2", "2")
    again = json.loads(kubectl(real, "get", "pod", "serving", "-o", "json"))
    assert again["metadata"]["uid"] == serving["metadata"]["uid"]
    assert phase(real, "serving") == "Running"


def gpus(status):
    return status["capacity"].get("nvidia.com/gpu"), status["allocatable"].get("nvidia.com/gpu")


def test_a_broken_archive_and_a_missing_pause_image_are_explained(real, tmp_path):
    broken = tmp_path / "broken.tar"
    broken.write_text("no tar")
    with pytest.raises(
        LocalKubeError, match=r"broken\.tar cannot be imported \(ctr: .*\)\. It must be an OCI or Docker"
    ):
        real.load_image(broken)
    with pytest.raises(LocalKubeError, match=r"none\.tar does not exist"):
        real.load_image(tmp_path / "none.tar")
    with pytest.raises(LocalKubeError, match=r"pause image .*none\.tar does not exist.* --pause-archive"):
        cluster.up(Options(name="other", node=True, pause_archive=str(tmp_path / "none.tar")))
    assert TOOL in real.images()


def test_a_node_whose_namespaces_died_is_started_afresh(real, serving):
    holder = next(c for c in real.components() if c.name == "namespaces")
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: not real.healthy())
    assert cluster.up(real.options, print).healthy()
    kubectl(real, "wait", "--for=condition=Ready", "pod/serving", "--timeout=90s")
    address = real.api.get("/api/v1/namespaces/default/services/serving")["spec"]["clusterIP"]
    assert until(lambda: ask(address, 80), what="the Service answering again") == "hello from serving\n"


def test_two_real_nodes_side_by_side_and_down_leaves_nothing(real, serving, archives, before):
    """Last: it takes the shared cluster down."""
    pause, tool = archives
    other = cluster.up(Options(name="other", node=True, pause_archive=str(pause)), print)
    other.load_image(tool)
    assert other.node_address != real.node_address
    assert other.images() != []
    apply_pod(other, "alone", [container("c", "serve", "8000")])
    kubectl(other, "wait", "--for=condition=Ready", "pod/alone", "--timeout=90s")
    address = kubectl(other, "get", "pod", "alone", "-o=jsonpath={.status.podIP}")
    assert until(lambda: ask(address, 8000)) == "hello from alone\n"
    service = real.api.get("/api/v1/namespaces/default/services/serving")["spec"]["clusterIP"]
    assert ask(service, 80) == "hello from serving\n", "kube-proxy of one does not touch the other"

    both = [(real.folder, real.block), (other.folder, other.block)]
    there = {name for one in both for name, found in traces(*one).items() if found}
    assert there == set(traces(*both[0])) - {"mounts"}, "the check has eyes; mounts stay in the namespace"
    programs = container_processes(real) + container_processes(other)
    assert len(programs) >= 2
    other.down()
    assert real.healthy()
    assert ask(service, 80) == "hello from serving\n"
    real.down()
    assert [p for p in programs if p.alive()] == []
    assert_gone(*both, before=before)


def test_down_after_a_killed_up_leaves_nothing(home, archives, before):
    folder = home / "cut"
    argv = [sys.executable, "-m", "localkube", "up", "--name", "cut", "--node", "--pause-archive", str(archives[0])]
    running = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("kubelet: started"):
            break
    running.kill()
    running.communicate()
    assert len(process.marked(folder)) >= 7, "nobody took them down"
    block = hostnet.claimed(folder)
    assert cluster.down("cut") is True
    assert_gone((folder, block), before=before)


def test_a_cluster_that_lost_its_register_starts_afresh_and_one_without_folder_is_still_ended(home, archives, before):
    options = Options(name="lost", node=True, pause_archive=str(archives[0]))
    first = cluster.up(options, print)
    lost = [Process.of(c.pid) for c in first.components()]
    (paths.RUNTIME / f"slot-{first.block.slot}").unlink()  # as a restart of the machine does
    said = []
    again = cluster.up(options, said.append)
    assert said[0].startswith("cluster lost has lost its network")
    assert again.healthy()
    assert not [p for p in lost if p.alive()]
    (again.folder / "cluster.json").unlink()
    assert process.marked(again.folder)
    assert cluster.down("lost") is True
    assert_gone((first.folder, first.block), (again.folder, again.block), before=before)


def container_processes(on):
    group = Path(f"/sys/fs/cgroup/pids/{on.block.link}")
    group = group if group.is_dir() else Path(f"/sys/fs/cgroup/{on.block.link}")
    pids = [int(line) for procs in group.rglob("cgroup.procs") for line in procs.read_text().split()]
    return [p for p in map(Process.of, pids) if p is not None]
