"""A place of its own for every identity in stores that outlive pods (DESIGN D8)."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.cache_server_flags import cache_server_flags
from qwen_cached_serve.inpod.facts import L2Tier, ProbeReport, ServeSettings
from qwen_cached_serve.inpod.flags import cache_server_argv
from qwen_cached_serve.inpod.identity import with_identity
from qwen_cached_serve.inpod.namespaces import MARKER, adapter, checked_identity, directory, namespace_of, prepare
from qwen_cached_serve.inpod.refusal import Refusal

ONE, OTHER = "v1-" + "a" * 40, "v1-" + "b" * 40
DISK = L2Tier("disk", "Filesystem", path="/var/lib/qcs-l2/disk/kv")


@pytest.fixture
def named(settings: ServeSettings, report: ProbeReport) -> ProbeReport:
    return with_identity(settings, report, {}, "commit " + "d" * 40, {"vllm": "a" * 16})


def test_names_are_valid_everywhere_and_differ() -> None:
    assert namespace_of(ONE) != namespace_of(OTHER)
    # A directory, a key prefix without "@" and a bucket name at once.
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", namespace_of(ONE))


def test_filesystem_has_a_directory_for_each() -> None:
    assert adapter(DISK, ONE) == {"type": "fs", "base_path": f"/var/lib/qcs-l2/disk/kv/qcs-{ONE}"}
    limited = adapter(replace(DISK, capacity_bytes=3 << 29), ONE)
    assert (limited["type"], limited["max_capacity_gb"]) == ("fs_native", 1.5)
    assert limited["base_path"] == directory(DISK, ONE) != directory(DISK, OTHER)
    # Without this block LMCache counts and never evicts (LMCache#4725).
    assert limited["eviction"]["eviction_policy"] == "LRU"


def test_valkey_has_a_prefix_for_each() -> None:
    tier = L2Tier("v", "Valkey", endpoint="valkey.example:6379")
    assert adapter(tier, ONE) == {
        "type": "valkey",
        "startup_nodes": "valkey.example:6379",
        "key_prefix": f"qcs-{ONE}",
    }
    whole = adapter(replace(tier, cluster=True, tls=True, username="kv"), ONE)
    assert whole == adapter(tier, ONE) | {"cluster_mode": True, "tls_enable": True, "username": "kv"}


def test_s3_has_a_bucket_for_each_or_is_refused() -> None:
    tier = L2Tier("s", "S3", endpoint="{namespace}.s3.example", region="eu", tls=True)
    assert adapter(tier, ONE) == {"type": "s3", "s3_endpoint": f"qcs-{ONE}.s3.example", "s3_region": "eu"}
    assert adapter(replace(tier, tls=False), ONE)["disable_tls"] is True
    shared = replace(tier, endpoint="bucket.s3.example")
    with pytest.raises(Refusal) as refused:
        adapter(shared, ONE)
    assert (refused.value.code, "without a prefix" in refused.value.message) == ("StoreNotSeparable", True)
    assert adapter(replace(shared, identity=ONE), ONE)["s3_endpoint"] == "bucket.s3.example"


@pytest.mark.parametrize("dedicated", ["", OTHER])
def test_resp_is_refused_unless_it_is_this_identitys_own(dedicated: str) -> None:
    tier = L2Tier("r", "Resp", endpoint="redis:6379", identity=dedicated)
    with pytest.raises(Refusal) as refused:
        adapter(tier, ONE)
    assert refused.value.code == "StoreNotSeparable"
    assert "neither key prefix nor database" in refused.value.message
    own = replace(tier, identity=ONE)
    assert adapter(own, ONE) == {"type": "resp", "host": "redis", "port": 6379}
    assert adapter(replace(own, username="kv"), "") == adapter(own, ONE) | {"username": "kv"}  # a plan


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Refusal, match="SettingsInvalid"):
        adapter(L2Tier("x", "Tape"), ONE)


def test_the_flag_follows_the_identity(settings: ServeSettings, named: ProbeReport) -> None:
    tiered = replace(settings, cache=replace(settings.cache, l2=(DISK, replace(DISK, name="second", path="/b"))))
    argv = cache_server_argv(tiered, named)
    specs = [json.loads(argv[index + 1]) for index, word in enumerate(argv) if word == "--l2-adapter"]
    assert [spec["base_path"] for spec in specs] == [directory(tier, named.identity) for tier in tiered.cache.l2]
    fp8 = with_identity(tiered, replace(named, kv_cache_dtype="fp8"), {}, "commit " + "d" * 40, {"vllm": "a" * 16})
    assert set(argv) & set(cache_server_argv(tiered, fp8)) & {word for word in argv if "base_path" in word} == set()
    assert "--l2-adapter" not in cache_server_argv(settings, named)


def test_the_tier_itself_does_not_count(settings: ServeSettings, named: ProbeReport) -> None:
    tiered = replace(settings, cache=replace(settings.cache, l2=(DISK,)))
    again = with_identity(tiered, named, {}, "commit " + "d" * 40, {"vllm": "a" * 16})
    assert again.identity == named.identity


def test_a_plan_shows_where_the_identity_will_stand(settings: ServeSettings, report: ProbeReport) -> None:
    tiered = replace(settings, cache=replace(settings.cache, l2=(DISK,)))
    flags = cache_server_flags(tiered, replace(report, method="Predicted"))
    assert "/qcs-IDENTITY" in next(flag.value or "" for flag in flags if flag.name == "--l2-adapter")


def test_gaps_close_the_store(settings: ServeSettings, named: ProbeReport, report: ProbeReport) -> None:
    """Two pods that both could not find out their device need not have the same one."""
    gap = with_identity(settings, replace(named, gpus=(), attention_backends=()), {}, "commit " + "d" * 40, {})
    tiered = replace(settings, cache=replace(settings.cache, l2=(DISK,)))
    for incomplete, word in ((gap, "attentionBackend"), (report, "the identity")):
        with pytest.raises(Refusal) as refused:
            cache_server_argv(tiered, incomplete)
        assert refused.value.code == "IdentityIncomplete"
        assert word in refused.value.message
    assert cache_server_argv(settings, gap)  # without a shared store nothing is lost
    assert checked_identity(named) == named.identity


def test_directories_are_made_and_marked(settings: ServeSettings, named: ProbeReport, tmp_path: Path) -> None:
    disk = replace(DISK, path=str(tmp_path / "kv"))
    tiered = replace(settings, cache=replace(settings.cache, l2=(disk,)))
    (made,) = prepare(tiered, named)
    assert made == tmp_path / "kv" / namespace_of(named.identity)
    marker = json.loads((made / MARKER).read_text())
    assert marker["identity"] == named.identity
    assert marker["components"] == named.identity_components
    before = (made / MARKER).stat().st_mtime_ns
    assert prepare(tiered, named) == [made]
    assert (made / MARKER).stat().st_mtime_ns == before  # several pods share it: what is right is left alone
    assert prepare(settings, named) == []


def test_a_volume_that_cannot_be_written_is_refused(
    settings: ServeSettings, named: ProbeReport, tmp_path: Path
) -> None:
    (tmp_path / "kv").write_text("a file where the directory should be")
    tiered = replace(settings, cache=replace(settings.cache, l2=(replace(DISK, path=str(tmp_path / "kv")),)))
    with pytest.raises(Refusal) as refused:
        prepare(tiered, named)
    assert refused.value.code == "StoreUnusable"
    assert os.strerror(20) in refused.value.message or os.strerror(17) in refused.value.message
