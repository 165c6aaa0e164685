"""Why Kubernetes does not make, start or keep a pod, told from the API server's, scheduler's and kubelet's own words.

The texts belong to Kubernetes 1.34-1.37; only their stable parts are matched and the original is always passed on,
since it names objects and figures that nothing else does. The classes are in `causes.cluster`.
"""

from __future__ import annotations

import re

from qwen_cached_serve.core.diagnose import Diagnosis, classified
from qwen_cached_serve.core.redaction import redact_text

_WORDS_CHARACTERS = 600

_MISSING_SECRET = re.compile(r'secret "([^"]+)" not found', re.IGNORECASE)
_MISSING_KEY = re.compile(r"couldn't find key (\S+) in Secret (\S+)", re.IGNORECASE)
_MISSING_CONFIG_MAP = re.compile(r'configmap "([^"]+)" not found', re.IGNORECASE)
_MISSING_SERVICE_ACCOUNT = re.compile(r'serviceaccount "([^"]+)" not found', re.IGNORECASE)

_PULL = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable",
     "ImageInspectError", "SignatureValidationFailed"}
)  # fmt: skip
_CREATION = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun",
     "PreCreateHookError", "PreStartHookError", "PostStartHookError"}
)  # fmt: skip
_PODS = {
    "Evicted": "Evicted",
    "NodeLost": "NodeLost",
    "NodeShutdown": "NodeLost",
    "Shutdown": "NodeLost",
    "Terminated": "NodeLost",  # the kubelet's word for pods that it ended in an orderly shutdown of the node
    "Preempting": "Preempted",
    "Preempted": "Preempted",
    "UnexpectedAdmissionError": "DeviceUnavailable",
    "NodeAffinity": "NodeRefused",
    "NodeName": "NodeRefused",
    "NodePorts": "NodeRefused",
    "TopologyAffinityError": "NodeRefused",
    "PodOSNotSupported": "NodeRefused",
}
"""`status.reason` of pods that will never run again; `OutOf…` (cpu, memory, nvidia.com/gpu) is a refusal too."""


def diagnose_pod_creation(words: str) -> Diagnosis:
    """Classify the `FailedCreate` text of a ReplicaSet."""
    quoted = shorten(words)
    if "exceeded quota" in words or "failed quota" in words:
        return classified("QuotaExceeded", f"The namespace's quota refuses the pod: {quoted}")
    if "violates PodSecurity" in words:
        return classified("PodSecurityBlocked", f"Pod Security admission refuses the pod: {quoted}")
    if match := _MISSING_SERVICE_ACCOUNT.search(words):
        return classified("ServiceAccountMissing", f'The ServiceAccount "{match[1]}" does not exist.')
    return classified("PodCreationRefused", f"The API server refuses the pod: {quoted}")


def diagnose_waiting(container: str, reason: str, words: str) -> Diagnosis | None:
    """Classify the reason a container waits for; None for ordinary waiting (`PodInitializing`, `ContainerCreating`)."""
    if reason in _PULL:
        return classified(
            "ImagePullFailed", f"The image of container {container} cannot be pulled: {shorten(words) or reason}."
        )
    if reason in _CREATION:
        return _configuration(container, words)
    return None


def _configuration(container: str, words: str) -> Diagnosis:
    if match := _MISSING_KEY.search(words):
        return classified("SecretMissing", f'The Secret "{match[2].rsplit("/", 1)[-1]}" has no key "{match[1]}".')
    if match := _MISSING_SECRET.search(words):
        return classified("SecretMissing", f'The Secret "{match[1]}" does not exist.')
    if match := _MISSING_CONFIG_MAP.search(words):
        return classified("ConfigMapMissing", f'The ConfigMap "{match[1]}" does not exist.')
    return classified("ContainerCreationFailed", f"Container {container} cannot be created: {shorten(words)}")


def diagnose_pod_failure(reason: str, words: str) -> Diagnosis:
    """Classify the end of a pod that will never run again (`status.phase: Failed`)."""
    code = _PODS.get(reason) or ("NodeRefused" if reason.startswith("OutOf") else "PodFailed")
    if re.search(r"devices unavailable|no healthy devices", words):
        code = "DeviceUnavailable"
    quoted = shorten(f"{reason}: {words}" if reason and words else reason or words)
    return classified(code, f"The pod has ended. {quoted or 'The node gave no reason'}".rstrip(".") + ".")


def diagnose_termination(container: str, reason: str, exit_code: int, seconds: float | None = None) -> Diagnosis | None:
    """Classify an end by the kubelet's reason and the exit code alone; None when they tell nothing.

    `seconds`: how long the container had run.
    """
    after = f" after {seconds:,.0f} s" if seconds is not None else ""
    if reason == "OOMKilled":
        server = container == "cache-server"
        return classified(
            "OOMKilled",
            f"Container {container} was killed{after} for using more memory than its limit.",
            remedy="Raise it, or lower spec.cache.l1.size." if server else "Raise it.",
            path="spec.cache.resources.limits.memory" if server else "",
        )
    if reason == "ContainerStatusUnknown":
        return classified("NodeLost", f"The node lost sight of container {container}.")
    if exit_code in (137, 143):
        return classified("Killed", f"Container {container} was killed{after} (exit code {exit_code}).")
    if exit_code == 132:
        return classified(
            "ProcessorUnsupported",
            f"Container {container} ended{after} with exit code 132: an instruction that the processor does not have.",
        )
    if exit_code in (134, 135, 136, 139):
        return classified("Crashed", f"Container {container} crashed{after} (exit code {exit_code}).")
    return None


def shorten(words: str, limit: int = _WORDS_CHARACTERS) -> str:
    """Make one line of a text, without what may be secret, and cut it at a limit."""
    line = redact_text(" ".join(words.split()))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
