"""What pods are doing, from recorded answers of vLLM 0.32.0 and LMCache 0.5.6."""

import json
from pathlib import Path

import pytest

from qwen_cached_serve.core.traffic import UNKNOWN_RATES, Tier, between, read_cache, read_engine, share

METRICS = (Path(__file__).parent / "fixtures/engine-metrics-0.32.0.txt").read_text()
STATUS = (Path(__file__).parents[1] / "inpod/fixtures/status-registered.json").read_text()


def later(seconds=2.0, **tokens):
    names = {
        "queries": "vllm:external_prefix_cache_queries_total",
        "hits": "vllm:external_prefix_cache_hits_total",
        "prompt": "vllm:prompt_tokens_total",
    }
    lines = [f'{names[name]}{{engine="1"}} {more}' for name, more in tokens.items()]
    return read_engine("\n".join([METRICS, *lines]), seconds)


def test_an_engine_is_read():
    found = read_engine(METRICS, 1.0)
    assert (found.block_size, found.running, found.waiting) == (2144, 0, 0)
    assert found.counters == {
        "local_queries": 9000.0,
        "local_hits": 0.0,
        "external_queries": 9000.0,
        "external_hits": 8576.0,
        "prompt_tokens": 9000.0,
        "generated_tokens": 6.0,
    }
    assert share(found.counters, "external") == pytest.approx(8576 / 9000)


def test_rates_are_what_happened_meanwhile():
    rates = between(read_engine(METRICS, 0.0), later(queries=400, hits=300, prompt=500))
    assert (rates.external_hits, rates.prompt_tokens) == (0.75, 250.0)
    assert rates.local_hits is None  # nothing was asked
    assert rates.generated_tokens == 0


def test_an_engine_that_started_anew_has_no_rate():
    assert between(later(queries=400), read_engine(METRICS, 9.0)) == UNKNOWN_RATES


def test_what_is_not_exported_is_not_known():
    found = read_engine("vllm:num_requests_running NaNa\nother 1\n", 0.0)
    assert (found.block_size, found.waiting, found.counters) == (None, None, {})
    assert between(found, found) == UNKNOWN_RATES


def test_a_cache_server_is_read():
    found = read_cache(STATUS)
    assert (found.used_bytes, found.size_bytes, found.registered, found.tiers) == (140509184, 1 << 30, 1, ())
    data = json.loads(STATUS)
    data["storage_manager"]["l2_adapters"] = [
        {"type": "valkey", "is_healthy": True, "current_size_bytes": 7},
        {"type": "FSL2Adapter", "is_healthy": False},
    ]
    assert read_cache(json.dumps(data)).tiers == (Tier("valkey", True, 7), Tier("FS", False, None))


@pytest.mark.parametrize("text", ["", "[]", '{"error": "no"}'])
def test_another_answer_is_no_status(text):
    assert read_cache(text) is None
