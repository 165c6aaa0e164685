"""What Kubernetes does to pods and containers; the rules read `kubectl describe` and events."""

from __future__ import annotations

from .rule import FailureClass, Tier, rule

_AREA = "Kubernetes"
_ENGINE_MEMORY = "spec.engine.resources.limits.memory"

CLASSES = (
    FailureClass(
        "OOMKilled",
        _AREA,
        "A container was killed for using more memory than its limit.",
        _ENGINE_MEMORY,
        "Raise it; for the cache server spec.cache.resources.limits.memory, or lower spec.cache.l1.size.",
    ),
    FailureClass(
        "Killed",
        _AREA,
        "A container was killed (exit code 137 or 143).",
        "",
        "If nobody deleted the pod, look for memory pressure on the node or a failing liveness probe.",
        heals=True,
    ),
    FailureClass(
        "Crashed",
        _AREA,
        "A program crashed (a fault in native code: exit code 134, 135, 136 or 139).",
        "spec.engine.image",
        "It starts again. If it comes back, read the log above the crash; another image, or a full /dev/shm for exit "
        "code 135.",
        heals=True,
    ),
    FailureClass(
        "ImagePullFailed",
        _AREA,
        "An image cannot be pulled.",
        "spec.engine.image",
        "Check it (or the image of the model, spec.model.source.image) and spec.pod.imagePullSecrets.",
        heals=True,
    ),
    FailureClass(
        "SecretMissing",
        _AREA,
        "A Secret or a key in it does not exist.",
        "",
        "Create it, or correct the reference in the resource (spec.model.source.huggingFace.tokenSecretKeyRef, "
        "spec.engine.env, spec.cache.env or spec.cache.l2); the pod starts by itself then.",
        heals=True,
    ),
    FailureClass(
        "ConfigMapMissing",
        _AREA,
        "A ConfigMap does not exist.",
        "",
        "Create it, or correct the reference in the resource (spec.engine.env, spec.cache.env or spec.pod.volumes); "
        "the pod starts by itself then.",
        heals=True,
    ),
    FailureClass(
        "ContainerCreationFailed",
        _AREA,
        "A container cannot be created.",
        "spec.pod",
        "Check it and spec.engine for what the message names.",
        heals=True,
    ),
    FailureClass(
        "VolumeMountFailed",
        _AREA,
        "A volume cannot be mounted.",
        "",
        "Check the claims, Secrets and images that the resource mounts (spec.model.source, spec.model.downloadVolume, "
        "spec.cache.l2, spec.pod.volumes).",
        heals=True,
    ),
    FailureClass(
        "VolumeBusy",
        _AREA,
        "A volume is still attached to another node, and may be used on one node only.",
        "",
        "Wait until the former pod is gone; for several replicas use a claim with ReadOnlyMany or ReadWriteMany.",
        heals=True,
    ),
    FailureClass(
        "StartupProbeFailed",
        _AREA,
        "The start-up gate has not been passed in time, and the kubelet ended the container.",
        "spec.engine.startupTimeoutSeconds",
        "The message says what the gate waited for. If the model was still loading, raise the field.",
        heals=True,
    ),
    FailureClass(
        "LivenessProbeFailed",
        _AREA,
        "The engine stopped answering its health check, and the kubelet ended the container.",
        "",
        "The container starts again; read its former log (kubectl logs --previous).",
        heals=True,
    ),
    FailureClass(
        "Evicted",
        _AREA,
        "The node ran short of something and evicted the pod.",
        "spec.engine.resources.requests",
        "Another pod is made. Request what the pod needs (memory, ephemeral storage), or use larger nodes.",
        heals=True,
    ),
    FailureClass(
        "NodeLost",
        _AREA,
        "The node does not answer any more, or was shut down.",
        "",
        "Another pod is made once Kubernetes gives the node up.",
        heals=True,
    ),
    FailureClass(
        "Preempted",
        _AREA,
        "A pod of higher priority took the place.",
        "spec.pod.priorityClassName",
        "Another pod is made and waits for room; give it a higher priority if it should stay.",
        heals=True,
    ),
    FailureClass(
        "DeviceUnavailable",
        _AREA,
        "The node promised a device that it cannot give (in use, unhealthy, or the device plugin restarted).",
        "",
        "Another pod is made. If it keeps happening on one node, restart its device plugin or take it out of service.",
        heals=True,
    ),
    FailureClass(
        "NodeRefused",
        _AREA,
        "The node refused the pod although the scheduler had chosen it.",
        "spec.engine.resources",
        "Another pod is made; the message names what was short.",
        heals=True,
    ),
    FailureClass(
        "PodFailed", _AREA, "The pod has ended.", "", "Another pod is made; the message is the node's.", heals=True
    ),
    FailureClass(
        "QuotaExceeded",
        _AREA,
        "The namespace's quota refuses the pod.",
        "spec.engine.resources",
        "Raise the quota, or lower it, spec.cache.resources or spec.cache.l1.size.",
        heals=True,
    ),
    FailureClass(
        "PodSecurityBlocked",
        _AREA,
        "Pod Security admission refuses the pod.",
        "spec.pod",
        "Correct the fields that the message names, or change the namespace's level.",
        heals=True,
    ),
    FailureClass(
        "ServiceAccountMissing",
        _AREA,
        "The ServiceAccount does not exist.",
        "spec.pod.serviceAccountName",
        "Create it, or correct the field.",
        heals=True,
    ),
    FailureClass(
        "PodCreationRefused",
        _AREA,
        "The API server refuses the pod (an admission webhook, an unknown RuntimeClass).",
        "",
        "The message is the API server's.",
        heals=True,
    ),
    FailureClass(
        "SchedulingGated",
        _AREA,
        "A queueing system such as Kueue holds the pod back (scheduling gates).",
        "",
        "It starts when the queue admits it; ask the queue (for Kueue: kubectl get workloads).",
        heals=True,
    ),
    FailureClass(
        "ScaleUpInProgress",
        _AREA,
        "A node is being made ready for the pod.",
        "",
        "It starts when the node is there.",
        heals=True,
    ),
    FailureClass(
        "WaitingForGPU",
        _AREA,
        "No node has a free GPU for the pod.",
        "spec.engine.accelerator",
        "It starts when one is free; check the field and spec.pod.",
        heals=True,
    ),
    FailureClass(
        "WaitingForMemory",
        _AREA,
        "No node has enough memory for the pod.",
        "spec.cache.l1.size",
        "Lower it or add a larger node.",
        heals=True,
    ),
    FailureClass(
        "WaitingForCPU",
        _AREA,
        "No node has enough free processors for the pod.",
        "spec.engine.resources.requests.cpu",
        "Lower it and spec.cache.resources.requests.cpu, or add a larger node.",
        heals=True,
    ),
    FailureClass(
        "WaitingForVolume",
        _AREA,
        "A volume of the pod is not available.",
        "spec.model",
        "Check the PersistentVolumeClaims that the resource names.",
        heals=True,
    ),
    FailureClass(
        "WaitingForNode",
        _AREA,
        "No node fits the pod.",
        "spec.pod.nodeSelector",
        "Check it, affinity and tolerations.",
        heals=True,
    ),
)

RULES = (
    rule("OOMKilled", r"(?:^ *Reason: OOMKilled|\"reason\": \"OOMKilled\"|^ *reason: OOMKilled)"),
    rule(
        "VolumeBusy",
        r"Multi-Attach error for volume \"(?P<volume>[^\"\n]{1,200})\"",
        "Volume {volume} is still attached to another node.",
    ),
    rule(
        "VolumeMountFailed",
        r"(?:MountVolume\.\w+ failed for volume \"(?P<volume>[^\"\n]{1,200})\" ?: (?P<words>[^\n]{1,240})|"
        r"Unable to attach or mount volumes: (?P<more>[^\n]{1,240}))",
        "A volume cannot be mounted: {volume} {words}{more}",
    ),
    rule(
        "ImagePullFailed",
        r"(?:Failed to pull image \"(?P<image>[^\"\n]{1,300})\"|Back-off pulling image \"(?P<again>[^\"\n]{1,300})\")",
        "The image {image}{again} cannot be pulled.",
    ),
    rule(
        "StartupProbeFailed",
        r"Startup probe failed: (?P<words>[^\n]{1,240})",
        "The start-up gate has not been passed: {words}",
        tier=Tier.SYMPTOM,
    ),
    rule(
        "LivenessProbeFailed",
        r"Liveness probe failed: (?P<words>[^\n]{1,240})",
        "The engine stopped answering its health check: {words}",
        tier=Tier.SYMPTOM,
    ),
    rule(
        "DeviceUnavailable",
        r"(?:UnexpectedAdmissionError|requested number of devices unavailable for (?P<resource>[\w./-]+)|"
        r"no healthy devices present|DeviceInUse)",
    ),
    rule(
        "SecretMissing",
        r"(?:^|Error: )secret \"(?P<secret>[^\"\n]{1,253})\" not found",
        'The Secret "{secret}" does not exist.',
    ),
    rule(
        "SecretMissing",
        r"couldn't find key (?P<key>\S+) in Secret (?P<secret>\S+)",
        'The Secret {secret} has no key "{key}".',
    ),
    rule(
        "ConfigMapMissing",
        r"(?:^|Error: )configmap \"(?P<name>[^\"\n]{1,253})\" not found",
        'The ConfigMap "{name}" does not exist.',
    ),
)
