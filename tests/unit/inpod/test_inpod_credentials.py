"""Secrets of the second tiers: into the cache server, and nowhere else."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.credentials import (
    ACCESS_KEY_ID,
    PASSWORD,
    SECRET_ACCESS_KEY,
    command,
    variable,
    with_credentials,
)
from qwen_cached_serve.inpod.facts import L2Tier, Ports, ProbeReport, ServeSettings, dumps
from tests.unit.inpod.pod_folder import PodFolder, wait_for

SECRETS = (PASSWORD, ACCESS_KEY_ID, SECRET_ACCESS_KEY)
DISK = L2Tier("disk", "Filesystem", path="/kv")
VALKEY = L2Tier("my-valkey", "Valkey", endpoint="v:6379", secrets=(PASSWORD,))
BUCKET = L2Tier("s", "S3", secrets=(ACCESS_KEY_ID, SECRET_ACCESS_KEY))
REDIS = L2Tier("r", "Resp", secrets=(PASSWORD,))
TIERS = (DISK, VALKEY, BUCKET, REDIS)
ENVIRON = {
    "QCS_L2_MY_VALKEY_PASSWORD": 'p"1',
    "QCS_L2_S_AWS_ACCESS_KEY_ID": "id",
    "QCS_L2_S_AWS_SECRET_ACCESS_KEY": "key",
    "QCS_L2_R_PASSWORD": "p2",
}


def argv(**more: str) -> list[str]:
    specs = [{"type": kind, **more} for kind in ("fs", "valkey", "s3", "resp")]
    derived = [word for spec in specs for word in ("--l2-adapter", json.dumps(spec))]
    return ["lmcache", "server", *derived, "--l2-adapter", '{"type": "mock"}']


def filled(environ: dict[str, str], *, swapped: bool, **more: str) -> list[dict[str, str]]:
    made = with_credentials(argv(**more), TIERS, environ, swapped=swapped)
    assert made[:2] == ["lmcache", "server"]
    return [json.loads(made[place + 1]) for place, word in enumerate(made) if word == "--l2-adapter"]


def test_variables_of_no_two_tiers_are_the_same() -> None:
    names = ["a", "a-b", "a-password", "a-aws-access-key", "a-aws-secret-access-key", "a-aws", "aws"]
    found = [variable(name, secret) for name in names for secret in SECRETS]
    assert not [pair for pair in combinations(found, 2) if pair[0] == pair[1]]


def test_each_adapter_gets_its_own_secrets() -> None:
    disk, valkey, bucket, redis, users = filled(ENVIRON, swapped=False)
    assert disk == {"type": "fs"}
    assert valkey == {"type": "valkey", "password": 'p"1'}
    assert bucket == {"type": "s3", "aws_access_key_id": "id", "aws_secret_access_key": "key"}
    assert redis == {"type": "resp", "password": "p2"}
    assert users == {"type": "mock"}


def test_a_release_that_swaps_them_gets_them_swapped() -> None:
    valkey, redis = filled(ENVIRON, swapped=True)[1], filled(ENVIRON, swapped=True)[3]
    assert valkey == {"type": "valkey", "username": 'p"1', "password": "default"}
    assert redis == {"type": "resp", "password": "p2"}  # another client
    assert filled(ENVIRON, swapped=True, username="kv")[1]["password"] == "kv"


@pytest.mark.parametrize("empty", [{}, dict.fromkeys(ENVIRON, ""), {"QCS_L2_S_AWS_ACCESS_KEY_ID": "id"}])
def test_optional_secrets_that_are_not_there_are_left_out(empty: dict[str, str]) -> None:
    assert filled(empty, swapped=True, username="kv")[1:4] == [{"type": "valkey"}, {"type": "s3"}, {"type": "resp"}]


def test_without_secrets_the_command_is_the_recorded_one() -> None:
    plain = replace(VALKEY, secrets=())
    assert command((DISK, plain), ["lmcache", "server"]) == ["lmcache", "server"]


FAKE_LMCACHE = """
import json, os, pathlib, sys, time
state = pathlib.Path(os.environ["QCS_STATE_DIR"])
seen = {
    "argv": sys.argv,
    "cmdline": pathlib.Path("/proc/self/cmdline").read_text(),
    "names": sorted(name for name in os.environ if name.startswith("QCS_L2_")),
    "main": __name__,
}
(state / "seen.tmp").write_text(json.dumps(seen))
(state / "seen.tmp").rename(state / "seen.json")
time.sleep(600)
"""


@pytest.fixture
def pod(
    tmp_path: Path, settings: ServeSettings, report: ProbeReport, free_ports: Callable[[int], list[int]]
) -> Iterator[PodFolder]:
    upstream, relay = free_ports(2)
    tiered = replace(
        settings,
        cache=replace(settings.cache, l2=(VALKEY,)),
        ports=Ports(cache_server_http=upstream, relay=relay),
    )
    folder = PodFolder(tmp_path, tiered)
    argv = ["lmcache", "server", "--l2-adapter", '{"type": "valkey", "username": "kv"}']
    (folder.layout.state / "cache-server.argv.json").write_text(json.dumps(argv))
    versions = replace(report.versions, lmcache="0.5.6")
    (folder.layout.state / "report.json").write_text(dumps(replace(report, gpus=(), versions=versions)))
    folder.fake_program("lmcache", FAKE_LMCACHE)
    yield folder
    folder.close()


def test_the_server_has_them_and_its_command_line_has_not(pod: PodFolder) -> None:
    container = pod.start("cache-server", {"QCS_L2_MY_VALKEY_PASSWORD": "geheim"})
    path = pod.layout.state / "seen.json"
    seen = json.loads(wait_for(lambda: path.is_file() and path.read_text()))
    assert seen["argv"][1] == "server"
    # LMCache 0.5.6 takes the one for the other.
    assert json.loads(seen["argv"][3]) == {"type": "valkey", "username": "geheim", "password": "kv"}
    assert "geheim" not in seen["cmdline"]
    assert seen["names"] == []
    assert seen["main"] == "__main__"
    container.send_signal(signal.SIGTERM)
    assert container.wait(timeout=60) == 0
    written = [file for file in tmp_files(pod) if "geheim" in file.read_text(errors="replace")]
    assert [file.name for file in written] == ["seen.json"]  # the fake's own


def tmp_files(pod: PodFolder) -> list[Path]:
    return [path for path in pod.root.rglob("*") if path.is_file()]
