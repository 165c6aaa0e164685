"""The test as kubelet: pods with the annotation `qcs.test/driven` do what it writes into their status, when it does."""

import datetime as dt
import json

from tests.cluster.operator_resources import report, with_message

DRIVEN_ANNOTATION = "qcs.test/driven"
HELD_FINALIZER = "qcs.test/held"
RUNNING = {"running": {"startedAt": "2026-11-29T12:00:00Z"}}


def driven(resource):
    """The resource, its pods waiting for `SimulatedKubelet`."""
    made = with_message(resource, report(784))
    made["spec"]["pod"]["annotations"][DRIVEN_ANNOTATION] = "true"
    return made


def container(name, state, *, started=False, ready=False, restarts=0, last=None):
    made = {"name": name, "image": "simulated", "imageID": "", "state": state}
    made |= {"started": started, "ready": ready, "restartCount": restarts}
    return made | ({"lastState": {"terminated": last}} if last else {})


def clock():
    """The present time as the API writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(code, message="", reason=""):
    now = clock()
    return {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "message": message,
        "startedAt": now,
        "finishedAt": now,
    }


PROBED = container("probe", {"terminated": ended(0, report(784))}, ready=True)
SERVER_UP = container("cache-server", RUNNING, started=True, ready=True)


def _condition(before, kind, status):
    # As a kubelet does: what stays as it was keeps its time, or the pod would not count as available for a while.
    since = before["lastTransitionTime"] if before and before["status"] == status else clock()
    return {"type": kind, "status": status, "lastTransitionTime": since}


class SimulatedKubelet:
    """Writes what a kubelet would into the status of one namespace's pods."""

    def __init__(self, cluster, namespace):
        self.cluster = cluster
        self.namespace = namespace

    def pods(self):
        """Live pods, oldest first."""
        items = self.cluster.get("pods", "-n", self.namespace)["items"]
        alive = [one for one in items if "deletionTimestamp" not in one["metadata"]]
        return sorted(alive, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))

    def placed(self, count=1):
        """That many live pods with a node and a status, or none yet."""
        found = [one for one in self.pods() if one["status"].get("containerStatuses")]
        return found if len(found) == count else None

    def says(self, pod, *, probe=PROBED, server=SERVER_UP, engine, ready=False):
        truth = "True" if ready else "False"
        now = self.cluster.get("pod", pod["metadata"]["name"], "-n", self.namespace)
        before = {one["type"]: one for one in now["status"].get("conditions", [])}
        conditions = [
            _condition(before.get(kind), kind, "True" if kind == "Initialized" else truth)
            for kind in ("Initialized", "Ready", "ContainersReady")
        ]
        known = [one for kind, one in before.items() if kind == "PodScheduled"]
        status = {
            "phase": "Running",
            "conditions": known + conditions,
            "initContainerStatuses": [probe, server],
            "containerStatuses": [engine],
        }
        self._patch(pod, {"status": status}, "--subresource=status")

    def serves(self, pod, restarts=0):
        self.says(pod, engine=container("engine", RUNNING, started=True, ready=True, restarts=restarts), ready=True)

    def loads(self, pod, restarts=0, last=None):
        self.says(pod, engine=container("engine", RUNNING, restarts=restarts, last=last))

    def fails(self, pod, message, code=1):
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
        self.says(pod, engine=container("engine", waiting, restarts=1, last=ended(code, message)))

    def hold(self, pod):
        """Have a deleted pod stay, as one that drains for long."""
        self._patch(pod, {"metadata": {"finalizers": [HELD_FINALIZER]}})

    def let_go(self, pod):
        self._patch(pod, {"metadata": {"finalizers": None}})

    def _patch(self, pod, patch, *extra):
        name = pod["metadata"]["name"]
        self.cluster.kubectl(
            "patch", "pod", "-n", self.namespace, name, "--type=merge", "-p", json.dumps(patch), *extra
        )
