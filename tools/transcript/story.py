"""What the transcript tells, in order. Each step that claims something checks it before the page is written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tests.cluster.chart_release import ChartOperators, lives, seen_again
from tests.cluster.operator_support import Cluster, eventually
from tools.transcript.page import Page
from tools.transcript.session import CommandError, Session

RELEASE = NAMESPACE = "qwen-cached-serve"
CRDS = "qwen-cached-serve-crds"
CRD = "qwencachedserves.qwencache.dev"
MODELS = "llm"
EXAMPLE = "examples/roll-back.yaml"
NAME = "qwen36-27b-production"
_PATIENCE = 180.0
_PODS = (
    f"kubectl get pods -n {MODELS} -o custom-columns="
    "NAME:.metadata.name,UID:.metadata.uid,NODE:.spec.nodeName,READY:.status.containerStatuses[0].ready"
)
_OPERATOR_PODS = f"kubectl get pods -n {NAMESPACE}"
_PRINTED = """
Written by `python -m tools.transcript` (`make transcript`), which runs every command below and keeps what it printed;
names, uids and times are those of that run.
"""
_REAL = """
Real: API server, controllers, scheduler, etcd, Helm, both charts, the operator's code, `qcs`. Played by KWOK: the nodes
and their kubelets. A pod is ready at once, and its probe ends with a report of N = 784. So this shows what happens to
objects, and when; what an engine does is in [demo.md](demo.md) and [measurements.md](measurements.md).
"""
_NO_IMAGE = """
The operator's pods are simulated here, for no image can run. In their stead runs a process of this checkout, with the
settings (`QCS_…`) of the chart's Deployment and a token of the chart's ServiceAccount: it may do what that may and
nothing else.
"""
_HELD = """
The pods are those of revision 1 until the spec changes; Stalled says so, for the spec that was asked for is held off.
Taking the edit back in the spec (or correcting it) ends that:
"""
_FREE = """
No operator runs, and nothing waits for one: there are no finalizers, and the garbage collector follows the owners.
"""


def _claim(holds: bool, words: str) -> None:
    if not holds:
        raise CommandError(f"not as the transcript says: {words}")


@dataclass(slots=True)
class Story:
    """Page, shell and cluster of one transcript."""

    page: Page
    session: Session
    cluster: Cluster
    operators: ChartOperators

    def tell(self) -> None:
        """Play all of it."""
        self._begin()
        self._install()
        self._apply()
        self._upgrade()
        self._edit()
        self._roll_back()
        self._uninstall()
        self._delete()

    def _begin(self) -> None:
        self.page.say(_PRINTED)
        self.page.say(_REAL)
        self._run("kubectl version", "helm version --short", "kubectl get nodes")

    def _install(self) -> None:
        self.page.chapter("Install")
        self._run(
            f"helm install {CRDS} charts/{CRDS} -n {NAMESPACE} --create-namespace",
            f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=restricted",
            f"helm install {RELEASE} charts/{RELEASE} -n {NAMESPACE} --wait --timeout 120s "
            "--set engineImages.gpu=localhost/qcs-engine:0.32.0-0.5.6",
            _OPERATOR_PODS,
        )
        self.page.note(_NO_IMAGE)
        self._start_operator()

    def _apply(self) -> None:
        self.page.chapter("Apply, and wait for Ready")
        self._run(
            f"kubectl create namespace {MODELS}",
            f"kubectl apply -n {MODELS} -f {EXAMPLE}",
            self._ready(),
            f"kubectl get qcs -n {MODELS}",
            _PODS,
            f"kubectl get events.events.k8s.io -n {MODELS} --field-selector regarding.kind=QwenCachedServe "
            "-o custom-columns=TYPE:.type,REASON:.reason,NOTE:.note",
            f"kubectl get deployments,services,serviceaccounts,controllerrevisions -n {MODELS} -l "
            f"app.kubernetes.io/instance={NAME}",
        )

    def _upgrade(self) -> None:
        self.page.chapter("Upgrade the operator, and back")
        before = self._lives()
        self._run(
            f"helm upgrade {RELEASE} charts/{RELEASE} -n {NAMESPACE} --reset-then-reuse-values --wait --timeout 120s "
            "--set image.tag=0.1.1 --set workers=8 --set log.level=debug"
        )
        self.page.say("The operator's pods are new ones; a new process looks at every resource.")
        self._start_operator()
        self._run(_OPERATOR_PODS, _PODS, f"kubectl get qcs -n {MODELS}")
        _claim(self._lives() == before, "an upgrade of the operator leaves pods and Deployment alone")
        self.page.say("The uids are those of before: no pod was touched, nor was its Deployment. The same back again:")
        self._run(
            f"helm rollback {RELEASE} 1 -n {NAMESPACE} --wait --timeout 120s",
            f"helm history {RELEASE} -n {NAMESPACE}",
        )
        self._start_operator()
        self._run(_PODS)
        _claim(self._lives() == before, "a rollback of the operator leaves pods and Deployment alone")

    def _edit(self) -> None:
        self.page.chapter("An edit that rolls")
        before = self._pods()
        self._run(
            self._longest_prompt(32768),
            self._ready(),
            f"kubectl get qcs -n {MODELS}",
            _PODS,
            f"qcs history {NAME} -n {MODELS}",
        )
        _claim(not before & self._pods(), "the edit replaced every pod")
        self.page.say(
            "All three pods are new, one after the other (`maxUnavailable: 1`, `maxSurge: 0`): no spare GPU is needed."
        )

    def _roll_back(self) -> None:
        self.page.chapter("Roll the pods back")
        before = self._pods()
        self._run(
            f"qcs rollback {NAME} -n {MODELS}",
            f"kubectl wait qcs/{NAME} -n {MODELS} --for=condition=Stalled --timeout=120s",
            f"kubectl rollout status deployment/{NAME} -n {MODELS} --timeout=120s",
        )
        self._wait(lambda: "roll" not in self.cluster.get("qcs", NAME, "-n", MODELS)["status"])
        _claim(not before & self._pods(), "the rollback replaced every pod")
        self._run(f"qcs history {NAME} -n {MODELS}", f"qcs status {NAME} -n {MODELS}", _PODS)
        self.page.say(_HELD)
        self._run(
            self._longest_prompt(65536),
            self._ready(),
            f"kubectl get qcs -n {MODELS}",
        )

    def _uninstall(self) -> None:
        self.page.chapter("Uninstall: what serves goes on")
        before = self._lives()
        self.operators.stop()
        self._run(f"helm uninstall {RELEASE} -n {NAMESPACE} --wait --timeout 120s", _PODS)
        _claim(self._lives() == before, "the pods go on without an operator")
        self.page.say(
            "The definition has `helm.sh/resource-policy: keep`: its chart goes, it stays, and with it every resource."
        )
        self._run(
            f"helm uninstall {CRDS} -n {NAMESPACE} --wait --timeout 120s",
            f"helm list -n {NAMESPACE}",
            f"kubectl get crd {CRD}",
            f"kubectl get qcs -n {MODELS}",
        )
        _claim(self._lives() == before, "the pods go on without the chart of the definition")

    def _delete(self) -> None:
        self.page.chapter("Delete")
        self.page.say(_FREE)
        self._run(f"kubectl delete qcs {NAME} -n {MODELS}")
        self._wait(lambda: not any(self._left()))
        self._run(
            f"kubectl get all,controllerrevisions -n {MODELS}",
            f"kubectl delete crd {CRD}",
            f"kubectl delete namespace {MODELS} {NAMESPACE} --timeout=120s",
        )

    def _run(self, *lines: str) -> None:
        for line in lines:
            self.session.run(line)

    @staticmethod
    def _longest_prompt(tokens: int) -> str:
        patch = f'{{"spec":{{"model":{{"maxModelLen":{tokens}}}}}}}'
        return f"kubectl patch qcs {NAME} -n {MODELS} --type=merge -p '{patch}'"

    @staticmethod
    def _ready() -> str:
        return f"kubectl wait qcs/{NAME} -n {MODELS} --for=condition=Ready --timeout=180s"

    def _start_operator(self) -> None:
        """Start the one that the chart asks for now, and let it look at what there is."""

        async def started() -> None:
            operator = await self.operators.start()
            if self.cluster.get("qcs", "-A")["items"]:
                await eventually(lambda: seen_again(operator, MODELS), timeout=_PATIENCE)

        asyncio.run(started())

    def _lives(self) -> Any:
        return lives(self.cluster, MODELS)

    def _pods(self) -> set[str]:
        return set(self._lives()[0])

    def _left(self) -> list[Any]:
        return list(
            self.cluster.get("pods,replicasets,deployments,services,controllerrevisions", "-n", MODELS)["items"]
        )

    @staticmethod
    def _wait(done: Any) -> None:
        asyncio.run(eventually(done, timeout=_PATIENCE))
