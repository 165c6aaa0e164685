"""The demo's steps, in order. Each says what it does and adds its figures to the report."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from demo.cluster import Place
from demo.narrate import Narrator
from demo.report import PlanFigures, Report
from demo.shell import ROOT, DemoError, Shell, counter, http
from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod import facts, flags, message
from qwen_cached_serve.inpod.identity import with_identity

NAMESPACE = "qcs-demo"
OPERATOR_NAMESPACE = "qwen-cached-serve"
OPERATOR_NAME = "qwen-cached-serve-operator"
DEMO_LABEL = "qwencache.dev/demo"
"""On everything the demo installed: what does not carry it is somebody else's and stays."""
NAME = "tiny"
ENGINE_PORT = 8000
PLANNED_MODELS = ("Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-0.8B")
SIMULATED = {"gpu-27b": ("Qwen/Qwen3.6-27B", 784), "gpu-0-8b": ("Qwen/Qwen3.5-0.8B", 544)}
READY_TIMEOUT_SECONDS = 1200.0
CHILD_KINDS = ("pods", "deployments", "replicasets", "services", "configmaps", "serviceaccounts")


def plan(narrator: Narrator, report: Report) -> None:
    """Predicted N and what follows from it, without any cluster."""
    narrator.step("Plan, without a cluster: the unified block size N and the flags that follow")
    shell = Shell(None, narrator)
    for model in PLANNED_MODELS:
        data = json.loads(shell.run([_qcs(), "plan", "--model", model, "-o", "json"]).stdout)
        figures = PlanFigures(data["blockSize"], data["chunkSize"], data["maxNumBatchedTokens"])
        report.plans[model] = figures
        narrator.say(f"{model}: {figures.line()}")


class Demo:
    """The steps on a cluster."""

    def __init__(self, place: Place, narrator: Narrator, report: Report) -> None:
        self._place = place
        self._n = narrator
        self._report = report
        self._shell = Shell(place.kubeconfig, narrator)

    def install_operator(self) -> None:
        """CRD, RBAC and the operator in its own pod."""
        self._n.step("Install the operator: CRD, RBAC, Deployment")
        begun = time.monotonic()
        found = self._shell.get("deployment", OPERATOR_NAME, OPERATOR_NAMESPACE)
        if found and not self._is_ours(found):
            raise DemoError(
                f"this cluster has an operator already (namespace {OPERATOR_NAMESPACE}); the demo would replace it. "
                "Use another cluster, or remove that operator first"
            )
        self._shell.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        overlay = self._operator_overlay()
        self._shell.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(overlay))
        self._shell.wait(
            "the operator's pods",
            lambda: self._deployment_available(OPERATOR_NAME, OPERATOR_NAMESPACE),
            timeout_seconds=300,
            remark=lambda: self._pod_remark(OPERATOR_NAMESPACE, ""),
        )
        self._report.operator_ready_seconds = time.monotonic() - begun
        self._n.say(f"operator available after {self._report.operator_ready_seconds:.0f} s")

    def serve(self) -> None:
        """Apply the small CPU resource and wait until it is Ready."""
        self._n.step("Apply the small CPU resource: probe, cache server, engine, start-up gate")
        self._shell.kubectl(
            "apply",
            "--server-side",
            "-f",
            "-",
            stdin=f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n",
        )
        begun = time.monotonic()
        self._apply(self._tiny())
        status = self._wait_ready("tiny is Ready")
        self._report.seconds_to_ready = time.monotonic() - begun
        self._report.block_size = status["blockSize"]["probed"]
        self._report.chunk_size = status["plan"]["chunkSize"]
        self._report.max_num_batched_tokens = status["plan"]["maxNumBatchedTokens"]
        self._n.say(f"Ready after {self._report.seconds_to_ready:.0f} s")
        self._n.say(self._shell.kubectl("get", "qcs", "-n", NAMESPACE))

    def prompts(self) -> None:
        """The same long prompt cold, again, and after the engine lost its own cache."""
        tokens = 4 * self._report.block_size + 64
        self._report.prompt_tokens = tokens
        self._n.step(f"A prompt of {tokens} tokens (more than 4 N), twice")
        self._report.cold_seconds, _ = self._complete(tokens)
        self._n.say(f"cold                              {self._report.cold_seconds:6.2f} s")
        self._report.local_hit_seconds, _ = self._complete(tokens)
        self._n.say(f"again, from the engine's own cache {self._report.local_hit_seconds:5.2f} s")

        self._n.step("Kill the engine container: the engine's own cache is gone, the cache server's is not")
        pod = self._pod()
        restarts = _restarts(pod, "engine")
        self._shell.kubectl(
            "exec", "-n", NAMESPACE, pod["metadata"]["name"], "-c", "engine", "--", "sh", "-c", "kill -TERM 1"
        )
        self._shell.wait(
            "the kubelet restarts the engine",
            lambda: True if _restarts(self._pod(), "engine") > restarts else None,
            timeout_seconds=180,
        )
        # The resource can still say Ready for the former life: wait for the new one's own gate first.
        self._shell.wait(
            "the engine passes its start-up gate again",
            lambda: _ready_again(self._pod(), restarts) or None,
            timeout_seconds=READY_TIMEOUT_SECONDS,
            remark=lambda: self._condition_remark(NAME),
        )
        self._wait_ready("tiny is Ready again")
        self._report.external_hit_seconds, hits = self._complete(tokens)
        self._report.external_hit_tokens = int(hits)
        self._n.say(f"same prompt through LMCache        {self._report.external_hit_seconds:5.2f} s")
        self._n.say(f"external hit tokens {int(hits)}; cold it was {self._report.cold_seconds:.2f} s")
        if hits < self._report.block_size:
            raise DemoError(f"expected external hits of at least one block ({self._report.block_size}), got {hits:.0f}")

    def edit(self) -> None:
        """A good edit rolls the pod with a new plan; a bad one is refused and nothing happens."""
        self._n.step("Edit chunkBlocks to 2: the pod rolls with a new plan")
        before = self._pod()["metadata"]["uid"]
        begun = time.monotonic()
        self._patch({"spec": {"cache": {"chunkBlocks": 2}}})
        self._shell.wait(
            "the old pod is replaced",
            lambda: True if all(pod["metadata"]["uid"] != before for pod in self._pods()) and self._pods() else None,
            timeout_seconds=300,
        )
        status = self._wait_ready("tiny is Ready with the new plan")
        self._report.roll_seconds = time.monotonic() - begun
        self._report.chunk_size_after_edit = status["plan"]["chunkSize"]
        self._n.say(f"rolled in {self._report.roll_seconds:.0f} s: chunk size {self._report.chunk_size_after_edit}")

        self._n.step("A bad edit: a flag that the operator derives")
        uid = self._pod()["metadata"]["uid"]
        patch = json.dumps({"spec": {"engine": {"extraArgs": ["--max-num-batched-tokens", "8192"]}}})
        self._report.refused_edit = self._shell.kubectl_fails(
            "patch", "qcs", NAME, "-n", NAMESPACE, "--type=merge", "-p", patch
        )
        self._n.say(self._report.refused_edit)
        if self._pod()["metadata"]["uid"] != uid:
            raise DemoError("the pod changed after a refused edit")

    def simulated_gpus(self) -> None:
        """Two GPU resources on simulated nodes; their probe reports come from the probe's own writer."""
        self._n.step("Two GPU resources on simulated nodes (no GPU here): reports by the probe's own writer")
        if not self._place.simulated_nodes:
            self._n.say("this cluster has no simulated nodes (label type=kwok): skipped")
            return
        for name, (model, block_size) in SIMULATED.items():
            self._apply(_simulated_resource(name, model, block_size))
        for name in SIMULATED:
            status = self._wait_ready(f"{name} is Ready", name=name)
            figures = PlanFigures(
                status["blockSize"]["probed"], status["plan"]["chunkSize"], status["plan"]["maxNumBatchedTokens"]
            )
            self._report.simulated[name] = figures
            self._n.say(f"{name}: probed {figures.line()}")
        self._n.say(self._shell.kubectl("get", "qcs", "-n", NAMESPACE))

    def delete(self) -> None:
        """Delete the resources: the garbage collector takes every child."""
        self._n.step("Delete the resources")
        begun = time.monotonic()
        self._shell.kubectl("delete", "qcs", "--all", "-n", NAMESPACE)
        self._shell.wait(
            "every child is gone",
            lambda: True if not self._left() else None,
            timeout_seconds=300,
            remark=lambda: ", ".join(self._left()),
        )
        self._report.delete_seconds = time.monotonic() - begun
        self._n.say(f"all gone after {self._report.delete_seconds:.0f} s")

    def remove(self) -> None:
        """Undo the demo on a cluster that stays."""
        self._shell.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
        found = self._shell.get("deployment", OPERATOR_NAME, OPERATOR_NAMESPACE)
        if found and self._is_ours(found):
            self._shell.kubectl("delete", "-k", str(ROOT / "config"), "--ignore-not-found")
        elif found:
            self._n.say("the operator is not the demo's: it stays")
        # The CRD stays: deleting it would delete every QwenCachedServe of this cluster, the user's own included.
        self._n.say("removed; the CRD stays (kubectl delete -f crds/ would delete every QwenCachedServe)")

    def reset(self) -> None:
        """Remove what an interrupted run left, so that every run starts the same."""
        self._shell.kubectl("delete", "qcs", "--all", "-n", NAMESPACE, "--ignore-not-found")
        self._shell.wait("what a former run left is gone", lambda: not self._left() or None, timeout_seconds=300)

    @staticmethod
    def _is_ours(deployment: dict[str, Any]) -> bool:
        return DEMO_LABEL in deployment["metadata"].get("labels", {})

    # -- looking ------------------------------------------------------------------------------------------------

    def _left(self) -> list[str]:
        selector = "app.kubernetes.io/managed-by=qwen-cached-serve"
        return [
            f"{kind}/{item['metadata']['name']}"
            for kind in CHILD_KINDS
            for item in self._shell.list(kind, NAMESPACE, selector)
        ]

    def _pods(self, name: str = NAME) -> list[dict[str, Any]]:
        resource = self._shell.get("qcs", name, NAMESPACE)
        selector = (resource or {}).get("status", {}).get("selector", "")
        pods = self._shell.list("pods", NAMESPACE, selector) if selector else []
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def _pod(self, name: str = NAME) -> dict[str, Any]:
        pods = self._pods(name)
        if len(pods) != 1:
            raise DemoError(f"expected one pod of {name}, found {len(pods)}")
        return pods[0]

    def _wait_ready(self, what: str, name: str = NAME) -> dict[str, Any]:
        return self._shell.wait(
            what,
            lambda: self._ready_status(name),
            timeout_seconds=READY_TIMEOUT_SECONDS,
            remark=lambda: self._condition_remark(name),
        )

    def _ready_status(self, name: str) -> dict[str, Any] | None:
        resource = self._shell.get("qcs", name, NAMESPACE)
        status: dict[str, Any] = (resource or {}).get("status", {})
        if not resource or status.get("observedGeneration") != resource["metadata"]["generation"]:
            return None
        ready = {c["type"]: c["status"] for c in status.get("conditions", [])}.get("Ready") == "True"
        return status if ready else None

    def _condition_remark(self, name: str) -> str:
        resource = self._shell.get("qcs", name, NAMESPACE) or {}
        for condition in resource.get("status", {}).get("conditions", []):
            if condition["type"] == "Ready":
                return f"{condition['reason']}: {condition['message']}"
        return "no status yet"

    def _pod_remark(self, namespace: str, selector: str) -> str:
        pods = self._shell.list("pods", namespace, selector)
        return ", ".join(f"{pod['metadata']['name']} {pod['status'].get('phase')}" for pod in pods)

    def _deployment_available(self, name: str, namespace: str) -> bool | None:
        deployment = self._shell.get("deployment", name, namespace) or {}
        status = deployment.get("status", {})
        wanted = deployment.get("spec", {}).get("replicas")
        current = status.get("observedGeneration") == deployment.get("metadata", {}).get("generation")
        return (
            True
            if current and wanted and status.get("availableReplicas") == wanted == status.get("updatedReplicas")
            else None
        )

    # -- doing --------------------------------------------------------------------------------------------------

    def _apply(self, resource: dict[str, Any]) -> None:
        self._shell.kubectl(
            "apply", "--server-side", "--force-conflicts", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(resource)
        )

    def _patch(self, patch: dict[str, Any]) -> None:
        self._shell.kubectl("patch", "qcs", NAME, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(patch))

    def _tiny(self) -> dict[str, Any]:
        resource: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "cpu-tiny.yaml").read_text())
        resource["spec"]["model"]["source"]["image"]["reference"] = self._place.images.model_tiny
        resource["spec"]["engine"]["image"] = self._place.images.engine_cpu
        return resource

    def _operator_overlay(self) -> Path:
        """A kustomization over `config/` that sets the image, in the build folder."""
        name, tag = _split(self._place.images.operator)
        overlay = ROOT / "build" / "demo" / "operator"
        overlay.mkdir(parents=True, exist_ok=True)
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../../../config"],
            "images": [{"name": "localhost/qcs-operator", "newName": name} | tag],
            "labels": [{"pairs": {DEMO_LABEL: "true"}}],
        }
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return overlay

    def _complete(self, tokens: int) -> tuple[float, float]:
        """Send the long prompt; returns seconds and the external hit tokens it caused."""
        body = {"model": NAME, "prompt": [1 + i * 7 % 500 for i in range(tokens)], "max_tokens": 1, "temperature": 0}
        with self._shell.forward(f"pod/{self._pod()['metadata']['name']}", NAMESPACE, ENGINE_PORT) as base:
            before = counter(http(f"{base}/metrics"), "vllm:external_prefix_cache_hits_total")
            begun = time.monotonic()
            http(f"{base}/v1/completions", body)
            seconds = time.monotonic() - begun
            hits = counter(http(f"{base}/metrics"), "vllm:external_prefix_cache_hits_total") - before
        return seconds, hits


def _simulated_resource(name: str, model: str, block_size: int) -> dict[str, Any]:
    """A GPU resource for a simulated node, with the message that a real probe would end with there."""
    resource: dict[str, Any] = {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "model": {"name": model},
            "cache": {"l1": {"size": "20Gi"}},
            "pod": {
                "nodeSelector": {"type": "kwok"},
                "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            },
        },
    }
    settings = resolve(parse(resource), OperatorDefaults()).settings
    report = facts.ProbeReport(
        block_size=block_size,
        kernel_block_size=block_size,
        attention_backends=("FLASH_ATTN",),
        versions=facts.Versions(vllm="0.32.0", lmcache="0.5.6"),
        method="Construct",
        kv_cache_dtype="auto",
        gpus=(facts.Gpu("Simulated H100", f"GPU-simulated-{name}", "9.0", "580.0", 80 * 1024**3),),
    )
    report = with_identity(settings, report, {}, "commit of a simulated checkpoint", {})
    argv = message.argv_hash(flags.engine_argv(settings, report), flags.cache_server_argv(settings, report))
    ended = message.termination_message(report, argv)
    resource["spec"]["pod"]["annotations"] = {"qcs.test/message.probe": ended}
    return resource


def _split(reference: str) -> tuple[str, dict[str, str]]:
    """Split an image reference into its name and kustomize's field for tag or digest."""
    name, _, digest = reference.partition("@")
    if digest:
        return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name, {"digest": digest}
    head, _, tag = name.rpartition(":")
    return (head, {"newTag": tag}) if head and "/" not in tag else (name, {"newTag": "latest"})


def _restarts(pod: dict[str, Any], container: str) -> int:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return next((int(s["restartCount"]) for s in statuses if s["name"] == container), 0)


def _ready_again(pod: dict[str, Any], restarts: int) -> bool:
    """Whether the engine is in a later life than `restarts` and ready in it."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return any(s["name"] == "engine" and int(s["restartCount"]) > restarts and s["ready"] for s in statuses)


def _qcs() -> str:
    return str(Path(sys.executable).with_name("qcs"))
