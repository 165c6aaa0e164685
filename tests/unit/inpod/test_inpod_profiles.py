"""Versions, profiles, pairs: what is refused, what is only noted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod.classify import check_architecture, refuse_arguments
from qwen_cached_serve.inpod.facts import CacheSettings, ProbeReport, ServeSettings, Versions
from qwen_cached_serve.inpod.flags import cache_server_argv, engine_argv
from qwen_cached_serve.inpod.groundwork import check_versions
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


def test_a_row_takes_over_what_it_does_not_name_but_not_the_source() -> None:
    profiles = load_profiles()
    middle = profiles.for_lmcache("0.5.5")
    assert (middle.since, middle.isolated_ipc, middle.reap_timeout, middle.http_host_default) == (
        "0.5.5", True, True, "0.0.0.0",
    )  # fmt: skip
    assert profiles.for_vllm("0.31.0").since == "0.30"
    assert profiles.for_vllm("0.20.0").source == ""
    assert all(row.source for row in (*profiles.vllm[1:], *profiles.lmcache[1:]))
    sources = [row.source for row in (*profiles.vllm, *profiles.lmcache)]
    assert len(set(sources)) == len(sources) - 1 - (sources.count("v1/multiprocess/config.py") - 1)


def test_an_older_version_gets_the_oldest_profile_and_a_note() -> None:
    found = load_profiles().for_lmcache("0.4.6")
    assert (found.since, found.note) == ("0.4.7", "LMCache 0.4.6 is older than the oldest reviewed release (0.4.7)")
    assert load_profiles().for_vllm("0.19.1").note == "vLLM 0.19.1 is older than the oldest reviewed release (0.20)"


@pytest.mark.parametrize(("version", "reviewed"), [("0.33.9", True), ("0.33.0rc1", True), ("0.34.0rc1", False)])
def test_a_patch_of_the_newest_release_counts_as_reviewed(version: str, reviewed: bool) -> None:
    assert (load_profiles().for_vllm(version).note == "") is reviewed


def test_faults_of_a_pair() -> None:
    profiles = load_profiles()
    assert profiles.known_faults("0.32.0", "0.5.6") == ()
    assert profiles.known_faults("nightly", "0.5.3") == profiles.known_faults("0.27.1", "main") == ()
    (denied,) = profiles.known_faults("0.32.0", "0.5.5")
    assert denied in profiles.denied
    (warned,) = profiles.known_faults("0.33.0", "0.5.6")
    assert warned in profiles.warned
    assert all(rule.issues for rule in (*profiles.denied, *profiles.warned))
    assert len(profiles.known_faults("0.27.1", "0.5.3")) == 3


RECORD = json.loads((Path(__file__).parent / "fixtures" / "release-facts.json").read_text(encoding="utf-8"))


def recorded(program: str) -> list[Any]:
    """Version and facts of every release that tools/release_facts.py has read."""
    rows = [(*name.split(), facts) for name, facts in RECORD.items()]
    return [pytest.param(version, facts, id=version) for found, version, facts in rows if found == program]


@pytest.mark.parametrize(("version", "facts"), recorded("vllm"))
def test_profiles_of_vllm_are_what_its_sources_say(version: str, facts: dict[str, Any]) -> None:
    profile = load_profiles().for_vllm(version)
    assert profile.note == ""
    assert profile.retention_flag is facts["retention_flag"]
    assert profile.mamba_cache_mode_flag is not facts["mamba_cache_mode_unset_by_default"]
    assert "align" in facts["mamba_cache_modes"]
    assert profile.small_capabilities == (("12.1",) if facts["gb10_is_small"] else ())
    assert list(profile.flash_attention_float32_state_blocks) == facts["flash_attention_exact_blocks"]
    assert profile.flash_attention_blackwell_block == facts["flash_attention_blackwell_block"]
    assert profile.flashinfer_large_blocks is (facts["flashinfer_largest_block"] == 1024)
    assert profile.cpu_kernel_block == (facts["cpu_kernel_block"] or 16)  # 0.20's CPU_ATTN names none
    assert list(profile.gdn_flashinfer_generations) == facts["gdn_flashinfer_generations"]
    assert profile.gdn_checkpoint_tokens == (facts["gdn_checkpoint_tokens"] or 1)


@pytest.mark.parametrize(("version", "facts"), recorded("lmcache"))
def test_profiles_of_lmcache_are_what_its_sources_say(version: str, facts: dict[str, Any]) -> None:
    profile = load_profiles().for_lmcache(version)
    assert profile.note == ""
    assert profile.separate_object_groups is ("--separate-object-groups" in facts["flags"])
    assert profile.isolated_ipc is ("--isolated-ipc" in facts["flags"]) is facts["isolated_ipc_key"]
    assert profile.reap_timeout is ("--worker-reap-timeout-seconds" in facts["flags"])
    assert profile.http_host_default == facts["http_host_default"]
    assert (profile.prometheus_port == "Ignored") is not facts["own_prometheus_port_opened"]
    rule = {(True, False): "OneBlockOnly", (False, True): "AtLeastOneBlock"}
    assert profile.tokens_per_step == rule[facts["step_below_two_blocks"], facts["step_of_one_block"]]
    assert profile.negotiates_chunk is facts["negotiates_chunk"]
    assert profile.valkey_credentials_swapped is facts["valkey_credentials_swapped"]


@pytest.mark.parametrize(
    ("program", "version", "make", "own"),
    [
        pytest.param(program, name.split()[1], make, own, id=name)
        for program, make, own in (
            ("vllm", engine_argv, {"--host", "--port"}),
            ("lmcache", cache_server_argv, set()),
        )
        for name in RECORD
        if name.startswith(program)
    ],
)
def test_no_release_gets_a_flag_that_it_does_not_have(
    settings: ServeSettings,
    report: ProbeReport,
    program: str,
    version: str,
    make: Callable[[ServeSettings, ProbeReport], list[str]],
    own: set[str],
) -> None:
    engine = replace(
        settings.engine, tensor_parallel_size=2, max_num_seqs=8, max_model_len=9999, kv_cache_dtype="fp8",
        mamba_ssm_cache_dtype="float32", attention_backend="X", block_size=16, speculative_method="mtp",
    )  # fmt: skip
    found = replace(report, versions=replace(report.versions, **{program: version}))
    emitted = {argument for argument in make(replace(settings, engine=engine), found) if argument.startswith("--")}
    assert emitted - own <= set(RECORD[f"{program} {version}"]["flags"])


def test_the_advised_and_the_newest_releases_are_among_the_read_ones() -> None:
    profiles = load_profiles()
    assert {f"vllm {profiles.advised_vllm}", f"lmcache {profiles.advised_lmcache}"} <= set(RECORD)
    assert f"vllm {profiles.newest_vllm}.0" in RECORD
    assert any(name.startswith(f"lmcache {profiles.newest_lmcache}") for name in RECORD)


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
