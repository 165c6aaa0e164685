"""Versions, profiles, pairs: what is refused, what is only noted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwen_cached_serve.inpod.construct import check_architecture, check_versions, refuse_arguments
from qwen_cached_serve.inpod.facts import CacheSettings, ServeSettings, Versions
from qwen_cached_serve.inpod.profiles import Version, load_profiles, parse_version
from qwen_cached_serve.inpod.refusal import Refusal


@pytest.mark.parametrize(
    ("text", "release", "final"),
    [
        ("0.32.0", (0, 32), True),
        ("0.32.0+cpu", (0, 32), True),
        ("v0.5.7rc2", (0, 5, 7), False),
        ("0.33.1.dev12+g4ba787ec9", (0, 33, 1), False),
        ("0.29.0rc6", (0, 29), False),
        ("0.4.7.post1", (0, 4, 7), True),
        ("1.0", (1,), True),
    ],
)
def test_versions_are_read(text: str, release: tuple[int, ...], final: bool) -> None:
    assert parse_version(text) == Version(release, final)


@pytest.mark.parametrize("text", ["", "nightly", "0.32.x", "main-abc", "0.32 beta of mine"])
def test_what_is_no_version(text: str) -> None:
    assert parse_version(text) is None


def test_versions_are_ordered() -> None:
    order = ["0.5.4", "0.5.6rc1", "0.5.6", "0.5.7rc2", "0.5.7", "0.5.10", "0.6"]
    parsed = [parse_version(text) for text in order]
    assert parsed == sorted(parsed)  # type: ignore[type-var]


def test_profiles_hold_from_their_release_on() -> None:
    profiles = load_profiles()
    assert profiles.for_vllm("0.32.0+cpu").mamba_cache_mode_flag
    assert not profiles.for_vllm("0.33.0").mamba_cache_mode_flag
    assert not profiles.for_vllm("0.28.1").retention_flag
    assert not profiles.for_lmcache("0.5.4").isolated_ipc
    assert profiles.for_lmcache("0.5.7rc2").negotiates_chunk
    assert profiles.for_lmcache("0.5.3").tokens_per_step == "OneBlockOnly"
    assert profiles.for_vllm("0.32.0").note == ""
    assert profiles.for_lmcache("0.5.6").note == ""


def test_an_unknown_newer_version_gets_the_newest_profile_and_a_note() -> None:
    profiles = load_profiles()
    for version in ("0.34.0", "1.2.3"):
        found = profiles.for_vllm(version)
        assert found.mamba_cache_mode_flag is False
        assert version in found.note
    assert "nightly" in profiles.for_lmcache("nightly").note
    assert profiles.for_lmcache("0.6.0").isolated_ipc


def pair(settings: ServeSettings, vllm: str, lmcache: str) -> str:
    try:
        check_versions(settings, Versions(vllm, lmcache), load_profiles())
    except Refusal as refusal:
        return refusal.code if "spec.engine.image" in refusal.hint else f"{refusal.code} without a remedy"
    return "accepted"


@pytest.mark.parametrize(
    ("vllm", "lmcache", "outcome"),
    [
        ("0.32.0", "0.5.6", "accepted"),
        ("0.32.0+cpu", "0.5.6", "accepted"),
        ("0.31.0", "0.5.6", "accepted"),
        ("0.33.0", "0.5.6", "accepted"),  # a source build of LMCache can work; the import tells
        ("0.32.0", "0.5.7rc2", "accepted"),
        ("0.34.0", "0.6.0", "accepted"),
        ("nightly", "nightly", "accepted"),
        ("0.32.0", "0.5.5", "UnsupportedPair"),
        ("0.27.1", "0.5.3", "UnsupportedPair"),
        ("0.29.0", "0.5.6", "UnsupportedPair"),
        ("0.30.0", "0.5.6", "ImageTooOld"),
        ("0.32.0", "0.5.6rc1", "UnsupportedPair"),
        ("0.32.0", "", "ProgramMissing"),
        ("", "0.5.6", "ProgramMissing"),
    ],
)
def test_pairs(settings: ServeSettings, vllm: str, lmcache: str, outcome: str) -> None:
    assert pair(settings, vllm, lmcache) == outcome


def test_a_denied_pair_names_its_issues(settings: ServeSettings) -> None:
    with pytest.raises(Refusal, match=r"LMCache/LMCache#4247"):
        check_versions(settings, Versions("0.32.0", "0.5.4"), load_profiles())


def test_without_the_cache_only_vllm_counts(settings: ServeSettings) -> None:
    plain = replace(settings, cache=CacheSettings(enabled=False))
    assert pair(plain, "0.28.0", "") == "accepted"
    assert pair(plain, "0.22.1", "") == "ImageTooOld"


def test_the_advised_pair_is_accepted(settings: ServeSettings) -> None:
    profiles = load_profiles()
    assert pair(settings, profiles.advised_vllm, profiles.advised_lmcache) == "accepted"
    assert profiles.advised_pair == "vLLM 0.32.0 with LMCache 0.5.6"


def test_other_families_are_refused() -> None:
    profiles = load_profiles()
    check_architecture("Qwen3_5MoeForConditionalGeneration", profiles)
    with pytest.raises(Refusal) as refused:
        check_architecture("LlamaForCausalLM", profiles)
    assert refused.value.code == "ArchitectureNotSupported"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Model architectures ['Qwen3_5ForConditionalGeneration'] are not supported for now.", "ImageTooOld"),
        ("Model architectures ['FooForCausalLM'] are not supported for now.", "ArchitectureNotSupported"),
        (
            "the checkpoint has model type `qwen3_5` but Transformers does not recognize this architecture",
            "ImageTooOld",
        ),
        ("No common block size for 784 (A: [64])", "BlockSizeNotFound"),
        ("Aligned KV cache block size 784 is not supported by attention backend(s): X.", "BlockSizeNotFound"),
        ("Unknown attention backend: 'X'. Valid options are: ...", "BadEngineArgs"),
    ],
)
def test_words_of_vllm(words: str, code: str) -> None:
    assert refuse_arguments(words, load_profiles()).code == code
