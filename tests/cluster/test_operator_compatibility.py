"""What changes N or the bytes behind it, on a real API server: each pod's report is made from the settings that it got.

The pods are simulated; their reports are what the probe's own code writes for the pod's own `settings.json`, with N and
backend as the case has them (they come from a GPU and an engine that are not here).
"""

import json
from functools import partial

import pytest

from qwen_cached_serve.core.volumes import CODE, file_key
from qwen_cached_serve.inpod import facts
from qwen_cached_serve.inpod.flags import cache_server_argv, engine_argv
from qwen_cached_serve.inpod.identity import with_identity
from qwen_cached_serve.inpod.message import argv_hash, termination_message
from qwen_cached_serve.kube.port import EVENTS, PODS, REPLICA_SETS, SERVES
from tests.cluster.operator_resources import condition, serve, serving
from tests.cluster.operator_support import eventually
from tests.cluster.registry import waiting

ADA = facts.Gpu("NVIDIA L40S", "GPU-1", "8.9", "580.1", 46 << 30)


def settings_of(cluster, namespace, pod):
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == CODE]
    config_map = cluster.get("configmap", "-n", namespace, volume["configMap"]["name"])
    return facts.load(facts.ServeSettings, json.loads(config_map["data"][file_key(facts.SETTINGS_FILE)]))


def probe(cluster, namespace, finds, pod):
    """The message of a pod's probe; `finds(settings)` is what it learns of GPU and engine."""
    settings = settings_of(cluster, namespace, pod)
    found = {"kernel_block_size": 16, "attention_backends": ("FLASH_ATTN",), "lmcache": "0.5.6"} | finds(settings)
    versions = facts.Versions("0.32.0", found.pop("lmcache"))
    report = facts.ProbeReport(versions=versions, method="Construct", gpus=(ADA,), **found)
    report = with_identity(settings, report, {}, "commit 0123456", {"vllm": "a" * 16, "lmcache": "b" * 16})
    digest = argv_hash(engine_argv(settings, report), cache_server_argv(settings, report))
    return termination_message(report, digest)


def shown(resource):
    """N, chunk size, tokens per step and identities as the status has them."""
    status = resource["status"]
    identities = tuple(one["identity"] for one in status["identities"])
    plan = status["plan"]
    return status["blockSize"]["probed"], plan["chunkSize"], plan["maxNumBatchedTokens"], identities


async def served(api, namespace, n):
    """The resource once it serves with that N and says what with."""

    async def there():
        resource, _ = await serving(api, namespace)
        assert resource["status"]["blockSize"]["probed"] == n
        return shown(resource) and resource

    return await eventually(there, timeout=60)


async def rolls(api, namespace):
    events = await api.list_all(EVENTS, namespace)
    started = [one for one in events if one["reason"] == "RollStarted"]
    return len(await api.list_all(REPLICA_SETS, namespace)) - 1, len(started)


CHANGES = [
    pytest.param(
        {"vllm": {"speculative": {"method": "mtp", "tokens": 2}}},
        lambda settings: {"block_size": {None: 784, 2: 800, 3: 800}[settings.engine.speculative_tokens]},
        800,
        ("--speculative-config",),
        id="B07-speculative",
    ),
    pytest.param(
        {"vllm": {"kvCacheDtype": "fp8_e4m3"}},
        lambda settings: (
            {"block_size": 1568, "kernel_block_size": 32, "attention_backends": ("FLASHINFER",)}
            if settings.engine.kv_cache_dtype == "fp8_e4m3"
            else {"block_size": 784}
        ),
        1568,
        ("--kv-cache-dtype",),
        id="B08-fp8",
    ),
    pytest.param(
        {"vllm": {"tensorParallelSize": 2}, "accelerator": {"gpu": {"count": 2}}},
        lambda _settings: {"block_size": 784},
        784,
        ("--tensor-parallel-size",),
        id="B12-ranks",
    ),
]


@pytest.mark.case("B07")
@pytest.mark.case("B08")
@pytest.mark.case("B12")
@pytest.mark.parametrize(("edit", "finds", "n", "flags"), CHANGES)
async def test_a_change_of_compatibility_is_one_roll_to_another_identity(
    cluster,
    api,
    namespace,
    operator,
    registry,
    edit,
    finds,
    n,
    flags,
):
    """Draft tokens, an 8-bit KV cache with another backend, more ranks with an equal N: probed with the flag, chunk and
    tokens per step from the new N, and no pod is left that could read the entries of before.
    """
    registry.choose = partial(probe, cluster, namespace, finds)
    cluster.apply(waiting(serve(namespace)))
    before = shown(await served(api, namespace, 784))
    assert before[:3] == (784, 784, 1567)
    cluster.patch(namespace, "qcs", "q", {"spec": {"engine": edit}})

    async def changed():
        resource, _ = await serving(api, namespace)
        assert shown(resource)[3] != before[3]
        return resource

    resource = await eventually(changed, timeout=90)
    size, chunk, tokens, after = shown(resource)
    assert (size, chunk, tokens) == (n, n, 2 * n - 1)
    assert len(after) == 1
    assert set(flags) <= set(resource["status"]["plan"]["engineArgs"])
    assert await rolls(api, namespace) == (1, 1)


@pytest.mark.case("B07")
async def test_one_draft_token_more_is_probed_again_though_n_is_equal(cluster, api, namespace, operator, registry):
    registry.choose = partial(probe, cluster, namespace, lambda _settings: {"block_size": 800})
    drafting = {"vllm": {"speculative": {"method": "mtp", "tokens": 2}}}
    cluster.apply(waiting(serve(namespace, engine=drafting)))
    before = shown(await served(api, namespace, 800))
    [old] = await api.list_all(PODS, namespace)
    drafting["vllm"]["speculative"]["tokens"] = 3
    cluster.patch(namespace, "qcs", "q", {"spec": {"engine": drafting}})

    async def changed():
        resource, _ = await serving(api, namespace)
        assert shown(resource)[3] != before[3]
        return shown(resource)

    assert (await eventually(changed, timeout=90))[:3] == before[:3]
    assert old["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in await api.list_all(PODS, namespace)}


@pytest.mark.case("B12")
async def test_more_ranks_than_gpus_are_refused_before_any_pod(cluster, api, namespace, operator):
    resource = serve(namespace, engine={"vllm": {"tensorParallelSize": 2}, "accelerator": {"gpu": {"count": 1}}})
    refused = cluster.apply(resource, check=False)
    assert refused.returncode
    assert "tensorParallelSize is larger than engine.accelerator.gpu.count" in refused.stderr
    assert await api.list_all(PODS, namespace) == []


@pytest.mark.case("B10")
async def test_what_the_probe_finds_wins_over_the_formula(cluster, api, namespace, operator, registry):
    """The formula says 544 for this model on a GPU; the machine says 640."""
    registry.choose = partial(probe, cluster, namespace, lambda _settings: {"block_size": 640})
    cluster.apply(waiting(serve(namespace, model={"name": "Qwen/Qwen3.5-0.8B", "maxModelLen": 65536})))
    resource = await served(api, namespace, 640)
    assert resource["status"]["blockSize"]["predicted"] == 544
    assert shown(resource)[:3] == (640, 640, 1279)
    assert condition(resource, "Stalled")["status"] == "False"


@pytest.mark.case("B13")
@pytest.mark.parametrize("lmcache", ["0.5.3", "0.5.6"])
async def test_a_step_fits_either_release_of_lmcache(cluster, api, namespace, operator, registry, lmcache):
    """The older one demands a step below two blocks, the newer one separate object groups."""
    registry.choose = partial(probe, cluster, namespace, lambda _settings: {"block_size": 784, "lmcache": lmcache})
    cluster.apply(waiting(serve(namespace)))
    resource = await served(api, namespace, 784)
    assert shown(resource)[:3] == (784, 784, 1567)
    assert resource["status"]["resolved"]["lmcache"] == lmcache


@pytest.mark.case("B14")
@pytest.mark.parametrize(
    ("longest", "expected"), [(1024, ("False", "BlockLargerThanContext")), (2100, ("True", "Effective"))]
)
async def test_a_block_larger_than_the_context(cluster, api, namespace, operator, registry, longest, expected):
    """Nothing can ever be cached: the pods serve, and the status says why the cache is of no use."""
    finds = {"block_size": 2096, "max_model_len": longest}
    registry.choose = partial(probe, cluster, namespace, lambda _settings: finds)
    cluster.apply(waiting(serve(namespace, model={"name": "Qwen/Qwen3.5-122B-A10B", "maxModelLen": longest})))
    await served(api, namespace, 2096)
    found = condition(await api.get(SERVES, namespace, "q"), "CacheEffective")
    assert (found["status"], found["reason"]) == expected
