"""Condition Validated: every doubt about releases and settings is said."""

from dataclasses import replace

import pytest

from qwen_cached_serve.core.validation import combination
from qwen_cached_serve.inpod.facts import CacheSettings, EngineSettings, ServeSettings

BASE = ServeSettings("m", EngineSettings("GPU"), CacheSettings(True, l1_size_bytes=1))
PLAIN = replace(BASE, cache=CacheSettings(False))
DRAFTING = replace(BASE, engine=replace(BASE.engine, speculative_method="mtp"))


@pytest.mark.parametrize(
    ("settings", "vllm", "lmcache", "expected"),
    [
        (BASE, "0.32.0", "0.5.6", ("True", "AdvisedPair")),
        (BASE, "0.32.0+cpu", "0.5.6", ("True", "AdvisedPair")),
        (BASE, "0.31.0", "0.5.6", ("True", "Reviewed")),
        (BASE, "0.32.0", "0.5.7rc2", ("True", "Reviewed")),
        (PLAIN, "0.32.0", "", ("True", "AdvisedPair")),
        (PLAIN, "0.33.0", "0.5.6", ("True", "Reviewed")),
        (BASE, None, "", ("Unknown", "NoPodProbed")),
        (DRAFTING, None, "", ("False", "SpeculativeDecoding")),
    ],
)
def test_verdicts(settings, vllm, lmcache, expected):
    found = combination(settings, vllm, lmcache)
    assert (found.status, found.reason) == expected


@pytest.mark.parametrize("settings", [BASE, PLAIN, DRAFTING])
@pytest.mark.parametrize(
    ("vllm", "words"),
    [
        ("0.34.0", "vLLM 0.34.0 is newer than the newest reviewed release (0.33) and treated as that one."),
        ("1.0", "vLLM 1.0 is newer than the newest reviewed release (0.33) and treated as that one."),
        ("nightly", "the image reports no release number for vLLM ('nightly'); it is treated as 0.33."),
    ],
)
def test_an_unknown_release_is_said_whatever_else_there_is_to_say(settings, vllm, words):
    found = combination(settings, vllm, "0.5.7")
    assert found.status == "False"
    assert words in found.message
    assert found.reason in ("NotReviewed", "SpeculativeDecoding")


def test_every_fault_of_a_pair_is_named():
    found = combination(DRAFTING, "0.27.1", "0.5.3")
    assert found.reason == "SpeculativeDecoding"
    for issue in ("LMCache/LMCache#4247", "LMCache/LMCache#4674", "vllm-project/vllm#45474"):
        assert issue in found.message
    assert combination(PLAIN, "0.27.1", "0.5.3").status == "True"
