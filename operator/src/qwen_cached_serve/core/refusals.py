"""Why Kubernetes does not make or start a pod, told from the API server's, scheduler's and kubelet's own words.

The texts belong to Kubernetes 1.34-1.37; only their stable parts are matched and the original is always passed on,
since it names objects and figures that nothing else does.
"""

from __future__ import annotations

import re

from qwen_cached_serve.core.diagnose import Diagnosis

_WORDS_CHARACTERS = 600

_MISSING_SECRET = re.compile(r'secret "([^"]+)" not found', re.IGNORECASE)
_MISSING_KEY = re.compile(r"couldn't find key (\S+) in Secret (\S+)", re.IGNORECASE)
_MISSING_CONFIG_MAP = re.compile(r'configmap "([^"]+)" not found', re.IGNORECASE)
_MISSING_SERVICE_ACCOUNT = re.compile(r'serviceaccount "([^"]+)" not found', re.IGNORECASE)

_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"})


def diagnose_pod_creation(words: str) -> Diagnosis:
    """Classify the `FailedCreate` text of a ReplicaSet."""
    quoted = shorten(words)
    if "exceeded quota" in words or "failed quota" in words:
        return Diagnosis(
            "QuotaExceeded",
            f"The namespace's quota refuses the pod: {quoted}",
            "Raise the quota, or lower spec.engine.resources, spec.cache.resources or spec.cache.l1.size.",
            False,
        )
    if "violates PodSecurity" in words:
        return Diagnosis(
            "PodSecurityBlocked",
            f"Pod Security admission refuses the pod: {quoted}",
            "Correct the fields it names in spec.pod, or change the namespace's level.",
            False,
        )
    if match := _MISSING_SERVICE_ACCOUNT.search(words):
        return Diagnosis(
            "ServiceAccountMissing",
            f'The ServiceAccount "{match[1]}" does not exist.',
            "Create it, or correct spec.pod.serviceAccountName.",
            False,
        )
    return Diagnosis("PodCreationRefused", f"The API server refuses the pod: {quoted}", "", False)


def diagnose_waiting(container: str, reason: str, words: str) -> Diagnosis | None:
    """Classify the reason a container waits for; None for ordinary waiting (`PodInitializing`, `ContainerCreating`)."""
    if reason in _PULL:
        return Diagnosis(
            "ImagePullFailed",
            f"The image of container {container} cannot be pulled: {shorten(words) or reason}.",
            "Check spec.engine.image and spec.pod.imagePullSecrets.",
            False,
        )
    if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        return _configuration(container, words)
    return None


def _configuration(container: str, words: str) -> Diagnosis:
    if match := _MISSING_KEY.search(words):
        return Diagnosis(
            "SecretMissing",
            f'The Secret "{match[2].rsplit("/", 1)[-1]}" has no key "{match[1]}".',
            "Add the key, or correct the reference in the resource; the pod starts by itself then.",
            False,
        )
    if match := _MISSING_SECRET.search(words):
        return Diagnosis(
            "SecretMissing",
            f'The Secret "{match[1]}" does not exist.',
            "Create it, or correct the reference in the resource; the pod starts by itself then.",
            False,
        )
    if match := _MISSING_CONFIG_MAP.search(words):
        return Diagnosis(
            "ConfigMapMissing",
            f'The ConfigMap "{match[1]}" does not exist.',
            "Create it; the pod starts by itself then.",
            False,
        )
    return Diagnosis(
        "ContainerCreationFailed",
        f"Container {container} cannot be created: {shorten(words)}",
        "Check spec.pod and spec.engine for what it names.",
        False,
    )


def diagnose_unschedulable(words: str) -> Diagnosis:
    """Put the scheduler's own words into a waiting reason; any extended resource name counts as GPU shortage."""
    quoted = shorten(words)
    if re.search(r"Insufficient [\w.-]+/[\w.-]+", words):
        return Diagnosis(
            "WaitingForGPU",
            f"No node has a free GPU for the pod: {quoted}",
            "It starts when one is free; check spec.engine.accelerator and spec.pod.",
            False,
        )
    if "Insufficient memory" in words:
        return Diagnosis(
            "WaitingForMemory",
            f"No node has enough memory for the pod: {quoted}",
            "Lower spec.cache.l1.size or add a larger node.",
            False,
        )
    if "Insufficient cpu" in words:
        return Diagnosis(
            "WaitingForCPU",
            f"No node has enough free processors for the pod: {quoted}",
            "Lower the cpu requests in spec.engine.resources and spec.cache.resources, or add a larger node.",
            False,
        )
    if "persistentvolumeclaim" in words.lower() or "volume" in words.lower():
        return Diagnosis(
            "WaitingForVolume",
            f"The pod's volume is not available: {quoted}",
            "Check the PersistentVolumeClaims that the resource names.",
            False,
        )
    return Diagnosis(
        "WaitingForNode",
        f"No node fits the pod: {quoted}",
        "Check spec.pod.nodeSelector, affinity and tolerations.",
        False,
    )


def diagnose_termination(container: str, reason: str, exit_code: int) -> Diagnosis | None:
    """Classify an end by the kubelet's reason and the exit code alone; None when they tell nothing."""
    if reason == "OOMKilled":
        field = (
            "spec.cache.resources.limits.memory"
            if container == "cache-server"
            else "spec.engine.resources.limits.memory"
        )
        return Diagnosis(
            "OOMKilled",
            f"Container {container} was killed for using more memory than its limit.",
            f"Raise {field}.",
            True,
        )
    if exit_code in (137, 143):
        return Diagnosis(
            "Killed",
            f"Container {container} was killed (exit code {exit_code}).",
            "If nobody deleted the pod, look for node pressure or a start-up time-out "
            "(spec.engine.startupTimeoutSeconds).",
            False,
        )
    return None


def shorten(words: str, limit: int = _WORDS_CHARACTERS) -> str:
    """Make one line of a text and cut it at a limit."""
    line = " ".join(words.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
