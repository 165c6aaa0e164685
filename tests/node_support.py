"""What node and engine tier share: the cluster that `tools.tiers` brought up, with images and operator in it."""

import json
import os
import time
from pathlib import Path

import yaml

from demo import cluster as places
from demo.narrate import Narrator
from demo.report import Report
from demo.shell import Shell
from demo.steps import Demo
from localkube import cluster as clusters
from tests.machine import locked, unavailable

ROOT = Path(__file__).resolve().parent.parent
SIGNAL = """
import os, signal, pathlib, sys
for p in pathlib.Path('/proc').iterdir():
    if p.name.isdigit() and int(p.name) not in (1, os.getpid()):
        words = (p / 'cmdline').read_bytes()
        if sys.argv[2].encode() in words:
            os.kill(int(p.name), int(sys.argv[1]))
            print('signalled', p.name)
"""
LOGS = ROOT / "build" / "logs" / "node"
IMAGES = ("operator", "engine-cpu", "model-tiny")
STARTUP_SECONDS = 900


class Node:
    """The cluster, seen as an administrator sees it."""

    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig
        self.narrator = Narrator()
        self.shell = Shell(kubeconfig, self.narrator)
        self.place = places.Place(kubeconfig, places.local_images(), simulated_nodes=True)

    def install_operator(self):
        Demo(self.place, self.narrator, Report()).install_operator()

    def tiny(self, name, **spec):
        """The small CPU resource of examples/, changed by `spec` (merged one level deep)."""
        resource = yaml.safe_load((ROOT / "examples" / "cpu-tiny.yaml").read_text())
        resource["metadata"]["name"] = name
        resource["spec"]["model"]["source"]["image"]["reference"] = self.place.images.model_tiny
        resource["spec"]["engine"]["image"] = self.place.images.engine_cpu
        for part, changes in spec.items():
            merged = resource["spec"].get(part, {}) | changes if isinstance(changes, dict) else changes
            resource["spec"][part] = merged
        return resource

    def apply(self, namespace, resource):
        self.shell.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(resource))

    def patch(self, namespace, name, spec):
        self.shell.kubectl("patch", "qcs", name, "-n", namespace, "--type=merge", "-p", json.dumps({"spec": spec}))

    def resource(self, namespace, name):
        return self.shell.get("qcs", name, namespace) or {}

    def conditions(self, namespace, name):
        """Conditions of the current generation, by type."""
        resource = self.resource(namespace, name)
        generation = resource.get("metadata", {}).get("generation")
        found = resource.get("status", {}).get("conditions", [])
        return {c["type"]: c for c in found if c.get("observedGeneration") == generation}

    def pods(self, namespace):
        return [p for p in self.shell.list("pods", namespace) if not p["metadata"].get("deletionTimestamp")]

    def wait(self, what, look, seconds=STARTUP_SECONDS, remark=lambda: ""):
        return self.shell.wait(what, lambda: look() or None, timeout_seconds=seconds, remark=remark)

    def wait_ready(self, namespace, name, seconds=STARTUP_SECONDS):
        def ready():
            condition = self.conditions(namespace, name).get("Ready")
            return condition if condition and condition["status"] == "True" else None

        begun = time.monotonic()
        self.wait(f"{name} is Ready", ready, seconds, remark=lambda: str(self.conditions(namespace, name).get("Ready")))
        return time.monotonic() - begun

    def signal(self, namespace, pod, container, number, word):
        """Send a signal to a container's processes whose command line holds `word`, all but its pid 1."""
        command = ("exec", "-n", namespace, pod, "-c", container, "--", "python3", "-c", SIGNAL)
        # The command may end with the container that it was run in; what it said counts.
        said = self.shell.kubectl(*command, str(int(number)), word, check=False)
        assert "signalled" in said, f"no process of {container} is about {word}"

    def keep_logs(self, namespace, test):
        """Everything a person would want to see of a failed test, in build/logs/node/<test>/."""
        folder = LOGS / test
        folder.mkdir(parents=True, exist_ok=True)
        everything = self.shell.run(
            ["kubectl", "get", "qcs,all,events,configmaps", "-n", namespace, "-o", "yaml"], check=False
        )
        (folder / "objects.yaml").write_text(everything.stdout)
        for pod in self.shell.list("pods", namespace):
            name = pod["metadata"]["name"]
            containers = pod["spec"].get("initContainers", []) + pod["spec"]["containers"]
            for container in (c["name"] for c in containers):
                for suffix, options in (("", ()), (".previous", ("--previous",))):
                    text = self.shell.kubectl("logs", "-n", namespace, name, "-c", container, *options, check=False)
                    if text:
                        (folder / f"{name}.{container}{suffix}.log").write_text(text)
        selector = "app.kubernetes.io/name=qwen-cached-serve-operator"
        options = ("-n", "qwen-cached-serve", "-l", selector, "--tail=-1")
        (folder / "operator.log").write_text(self.shell.kubectl("logs", *options, check=False))


def connect():
    """The cluster of this run, with images and operator; the tier is skipped (in CI: fails) where there is none."""
    kubeconfig, name = os.environ.get("QCS_NODE_KUBECONFIG"), os.environ.get("QCS_NODE_CLUSTER")
    if not kubeconfig:
        unavailable("no node cluster: run `make test-node` or `make test-engine`, which bring one up")
    node = Node(kubeconfig)
    # Two workers of pytest-xdist come here at once; the second finds everything done.
    with locked("node-cluster"):
        if name:
            found = clusters.find(name)
            for image in IMAGES:
                found.load_image(ROOT / "build" / "images" / f"{image}.tar")
        node.install_operator()
    return node
