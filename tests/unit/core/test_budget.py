import pytest

from qwen_cached_serve.api.quantity import parse as quantity
from qwen_cached_serve.api.quantity import to_bytes
from qwen_cached_serve.core.budget import BudgetError, BudgetInputs, budget

GIB = 1024**3


def made(**changes):
    inputs = {
        "accelerator": "GPU",
        "ranks": 1,
        "l1_bytes": 40 * GIB,
        "engine_requests": {},
        "engine_limits": {},
        "cache_requests": {},
        "cache_limits": {},
    }
    return budget(BudgetInputs(**(inputs | changes)))


@pytest.mark.parametrize(
    ("requests", "limits"),
    [
        ({}, {"memory": "1Gi"}),
        ({"memory": "900Gi"}, {}),
        ({"cpu": "64"}, {}),
        ({}, {"cpu": "100m"}),
        ({"memory": "3Gi"}, {"memory": "5Gi", "ephemeral-storage": "10Gi"}),
    ],
)
def test_given_figures_win_and_requests_never_exceed_limits(requests, limits):
    engine = made(engine_requests=requests, engine_limits=limits).engine
    assert requests.items() <= engine.requests.items()
    assert limits.items() <= engine.limits.items()
    for name in ("cpu", "memory"):
        assert quantity(engine.requests[name]) <= quantity(engine.limits[name])


@pytest.mark.case("B40")
def test_a_cache_server_that_would_be_killed_is_refused():
    with pytest.raises(
        BudgetError, match=r"spec\.cache\.resources\.limits\.memory: 64Gi is less than .* at least 66Gi"
    ):
        made(l1_bytes=64 * GIB, cache_limits={"memory": "64Gi"})
    assert made(l1_bytes=64 * GIB, cache_limits={"memory": "66Gi"}).cache_server.limits["memory"] == "66Gi"


def test_a_cpu_engine_holds_its_kv_space_in_shared_memory():
    small = made(accelerator="CPU", cpu_kv_space="1")
    assert small.shm_bytes == 2 * GIB
    assert small.cpu_kv_space_gib == 1
    assert to_bytes(small.engine.limits["memory"]) >= 2 * GIB + GIB + 4 * GIB
    assert made(accelerator="CPU").cpu_kv_space_gib == 4
    assert made().cpu_kv_space_gib is None


@pytest.mark.parametrize("value", ["0.02", "0", "-1", "1Gi", ""])
def test_a_kv_space_that_the_engine_would_refuse_is_refused(value):
    with pytest.raises(BudgetError, match=r"VLLM_CPU_KVCACHE_SPACE\]: must be whole GiB"):
        made(accelerator="CPU", cpu_kv_space=value)


def test_the_pods_memory_is_the_sum_that_the_scheduler_counts():
    plan = made()
    assert plan.pod_memory_bytes == to_bytes(plan.engine.requests["memory"]) + 42 * GIB
