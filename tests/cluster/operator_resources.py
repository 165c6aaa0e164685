"""Resources for the operator's cluster tests, and reports as the probe's own writer makes them."""

from qwen_cached_serve.core import names
from qwen_cached_serve.inpod.facts import CacheSettings, EngineSettings, Gpu, ProbeReport, ServeSettings, Versions
from qwen_cached_serve.inpod.identity import with_identity
from qwen_cached_serve.inpod.message import error_message, termination_message
from qwen_cached_serve.kube.port import OWNED, SERVES

API_VERSION = "qwencache.dev/v1alpha1"
MESSAGE_ANNOTATION = "qcs.test/message.probe"
"""localkube's simulated pods end their probe with this annotation of the pod as termination message."""


def serve(namespace, name="q", **spec):
    """A small GPU resource; keyword arguments replace parts of its spec."""
    base = {
        "model": {"name": "Qwen/Qwen3.6-27B", "maxModelLen": 65536},
        "cache": {"l1": {"size": "10Gi"}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "QwenCachedServe",
        "metadata": {"namespace": namespace, "name": name},
        "spec": base | spec,
    }


def with_message(resource, text):
    """The resource, its simulated pods ending their probe with `text`."""
    pod = dict(resource["spec"].get("pod") or {})
    pod["annotations"] = {**pod.get("annotations", {}), MESSAGE_ANNOTATION: text}
    return {**resource, "spec": {**resource["spec"], "pod": pod}}


def failing_with(resource, text, exit_code=1):
    """The resource, the probe of its simulated pods failing with `text` (stages/operator-probe-fails.yaml)."""
    made = with_message(resource, text)
    made["spec"]["pod"]["annotations"]["qcs.test/probe-exit"] = str(exit_code)
    return made


def report(block_size, **changes):
    """The probe's termination message for N = block_size on a Hopper GPU."""
    made = ProbeReport(
        block_size=block_size,
        kernel_block_size=16,
        attention_backends=("FLASH_ATTN",),
        versions=Versions(vllm="0.32.0", lmcache="0.5.6"),
        method="Construct",
        gpus=(Gpu("NVIDIA H200", "GPU-1", "9.0", "580.1", 141 << 30),),
        node="sim-0",
        **changes,
    )
    settings = ServeSettings("m", EngineSettings("GPU"), CacheSettings(enabled=True))
    return termination_message(with_identity(settings, made, {}, "commit 0123456", {}), "0123456789abcdef")


def failure(code, message, hint):
    """The probe's termination message for a refusal."""
    return error_message(code, message, hint)


def base(name):
    """Name of the resource's Deployment, Service and account."""
    return names.base_name(name)


async def children(api, namespace, uid):
    """All children of a resource, by kind and name."""
    found = {}
    for kind in OWNED:
        for item in await api.list_all(kind, namespace, selector=f"{names.OWNER_UID_LABEL}={uid}"):
            found[kind.kind, item["metadata"]["name"]] = item
    return found


async def complete(api, namespace, name="q"):
    """The resource and its children, once all four kinds are there and the status speaks of the latest spec."""
    resource = await api.get(SERVES, namespace, name)
    found = await children(api, namespace, resource["metadata"]["uid"])
    assert {kind for kind, _ in found} == {"ConfigMap", "ServiceAccount", "Service", "Deployment"}
    assert resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"]
    return resource, found


async def serving(api, namespace, name="q"):
    """As `complete`, once the resource is ready and its pods have been so for long enough to count as available."""
    resource, found = await complete(api, namespace, name)
    assert condition(resource, "Ready")["status"] == "True", condition(resource, "Ready")
    assert condition(resource, "Available")["status"] == "True", condition(resource, "Available")
    return resource, found


def condition(resource, kind):
    for entry in resource.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return entry
    raise AssertionError(f"no condition {kind} in {resource.get('status')}")
