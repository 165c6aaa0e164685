"""The rules about arguments against the installed parsers: names, abbreviations, units."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod.arguments import canonical
from qwen_cached_serve.inpod.dry_start import dry_start_argv
from qwen_cached_serve.inpod.facts import (
    CacheSettings,
    EngineSettings,
    L2Tier,
    ProbeReport,
    ServeSettings,
    Versions,
)
from qwen_cached_serve.inpod.flags import (
    RESERVED_CACHE_SERVER_FLAGS,
    RESERVED_ENGINE_FLAGS,
    FlagTable,
    cache_server_argv,
    reserved_pattern,
)
from qwen_cached_serve.inpod.groundwork import Groundwork
from qwen_cached_serve.inpod.namespaces import adapter, namespace_of
from qwen_cached_serve.inpod.neutral import ENGINE, load_neutral
from qwen_cached_serve.inpod.profiles import load_profiles
from tests.machine import unavailable

pytestmark = pytest.mark.timeout(900)

OPTIONS = Path(__file__).resolve().parents[1] / "unit/inpod/fixtures/options.json"

SCRIPT = """
import argparse, json, re, socket, sys
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.entrypoints.launchers.launcher import create_server_socket
from vllm.model_executor.model_loader import get_model_loader
from vllm.utils.argparse_utils import FlexibleArgumentParser
from lmcache.cli.commands.server import ServerCommand
from lmcache.v1.distributed.config import parse_args_to_config
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config

class Ambiguous(Exception):
    pass

def refuse(message):
    raise Ambiguous(message)

asked = json.load(sys.stdin)
server = argparse.ArgumentParser()
ServerCommand().add_arguments(server)
parsers = {"vllm serve 0.32.0": make_arg_parser(FlexibleArgumentParser()), "lmcache server 0.5.6": server}
answer = {"options": {}, "missed": {}, "sizes": [], "tiers": [], "spellings": [], "loaders": [], "reached": []}
for program, parser in parsers.items():
    parser.error = refuse
    answer["options"][program] = sorted({name for action in parser._actions for name in action.option_strings})
    pattern, reserved = asked["tables"][program]
    missed = []
    for name in answer["options"][program]:
        for length in range(2, len(name) + 1):
            short = name[:length]
            try:
                found = parser._parse_optional(short) if short not in ("--", "-") else None
            except Ambiguous:
                continue
            found = found[0] if isinstance(found, list) and len(found) == 1 else found
            action = found[0] if isinstance(found, tuple) else None
            if action is None:
                continue
            names = set(action.option_strings)
            if names & set(reserved) and not re.search(pattern, short):
                missed.append(short)
    answer["missed"][program] = missed
for argv in asked["servers"]:
    arguments = server.parse_args(argv[2:])
    answer["sizes"].append(parse_args_to_config(arguments).l1_manager_config.memory_config.size_in_bytes)
for spec in asked["tiers"]:
    (adapter,) = parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=[json.dumps(spec)])).adapters
    names = ("base_path", "key_prefix", "s3_endpoint", "max_capacity_gb")
    found = {name: getattr(adapter, name, None) for name in names}
    answer["tiers"].append([type(adapter).__name__, found, adapter.eviction_config is not None])
for spellings in asked["spellings"]:
    # `serve` parses below the program's own parser, where abbreviations and dashes are handled.
    parser = FlexibleArgumentParser(prog="vllm")
    make_arg_parser(parser.add_subparsers(dest="subparser").add_parser("serve"))
    # The order of a JSON value's keys is the order they were typed in, and means nothing to the engine.
    parsed = [vars(parser.parse_args(["serve", "m", *argv])) for argv in spellings]
    answer["spellings"].append([json.dumps(one, sort_keys=True, default=repr) for one in parsed])
for argv in asked["dry_starts"]:
    parser = FlexibleArgumentParser(prog="vllm")
    make_arg_parser(parser.add_subparsers(dest="subparser").add_parser("serve"))
    config = EngineArgs.from_cli_args(parser.parse_args(argv[1:])).create_load_config()
    answer["loaders"].append(type(get_model_loader(config)).__name__)
if asked["ipv6"]:
    with create_server_socket(("::", 0), reuse_port=False) as sock:
        sock.listen()
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, sock.getsockname()[1]), timeout=10).close()
            answer["reached"].append(address)
print("ANSWER" + json.dumps(answer))
"""

SIZES = [1 << 30, 60 << 30, 64 << 30, 100 << 30, 1_000_000_000, (3 << 30) + 4096, 123_456_789_123]


IDENTITY = "v1-" + "a" * 40
TIERS = (
    L2Tier("d", "Filesystem", path="/l2"),
    L2Tier("d", "Filesystem", path="/l2", capacity_bytes=3 << 29),
    L2Tier("v", "Valkey", endpoint="h:6379"),
    L2Tier("s", "S3", endpoint="{namespace}.s3.x", region="eu"),
    L2Tier("r", "Resp", endpoint="h:6379", identity=IDENTITY),
)
SPELLINGS = [
    [["--load-format", "dummy"], ["--load_format=dummy"], ["--load-f", "dummy"]],
    [["--no-enforce-eager"], ["--no_enforce_eager"], ["--no-enforce-e"]],
    [["--quantization", "fp8"], ["-q", "fp8"], ["-q=fp8"], ["-qfp8"]],
    [["--optimization-level", "3"], ["-O3"], ["-O", "3"], ["-O=3"]],
    [
        ["--hf-overrides", '{"a": 1, "b": {"c": [1, 2]}}'],
        ["--hf-overrides.a", "1", "--hf-overrides.b.c", "[1, 2]"],
        ["--hf_overrides.b.c=[1,2]", "--hf-overrides.a=1"],
    ],
    [["--hf-overrides.a", "1", "--hf-overrides", '{"a": 2}'], ["--hf-overrides", '{"a": 1}']],
    [["--hf-overrides.a+", "x,y"], ["--hf-overrides.a+=x", "--hf-overrides.a+=y"], ['--hf-overrides={"a":["x","y"]}']],
    [["--seed", "1", "--seed", "2"], ["--seed=2"]],
    [["--dtype", "half", "--seed", "2"], ["--seed", "2", "--dtype=half"]],
    [["--gpu-memory-utilization", ".9"], ["--device-memory-utilization", ".9"]],
]
"""Groups that vLLM's parser takes for the same; `inpod.arguments` has to agree."""
LOADER_SETTINGS = [
    ["--model-loader-extra-config", '{"concurrency":16}'],
    ["--model_loader_extra_config={}", "--model-loader-extra-config.a.b=1", "--model_loader_extra_config.c+", "x,y"],
    ["--model-l.concurrency", "16", "--model-l", '{"a":1.5}'],
]
"""What vLLM's loader of random weights refuses, so that a dry start must not pass it on."""


def dry_start(*extra_args: str) -> list[str]:
    engine = EngineSettings("CPU", extra_args=("--load-format", "runai_streamer", *extra_args, "--seed", "1"))
    settings = ServeSettings("m", engine, CacheSettings(True, l1_size_bytes=1 << 30))
    return dry_start_argv(Groundwork(settings, Versions("0.32.0", "0.5.6"), (), "", load_profiles()), 4711)


def table_for_script(table: FlagTable) -> list[Any]:
    return [reserved_pattern(table), sorted(name for flag in table.flags for name in flag.spellings())]


@pytest.fixture(scope="module")
def answer(engine_python: str) -> dict[str, Any]:
    """What the installed parsers say, asked once."""
    report = ProbeReport(352, 352, ("CPU_ATTN",), Versions("0.32.0", "0.5.6"), "Construct")
    servers = [
        cache_server_argv(ServeSettings("m", EngineSettings("GPU"), CacheSettings(True, l1_size_bytes=size)), report)
        for size in SIZES
    ]
    asked = {
        "tables": {
            "vllm serve 0.32.0": table_for_script(RESERVED_ENGINE_FLAGS),
            "lmcache server 0.5.6": table_for_script(RESERVED_CACHE_SERVER_FLAGS),
        },
        "servers": servers,
        "tiers": [adapter(tier, IDENTITY) for tier in TIERS],
        "spellings": SPELLINGS,
        "ipv6": socket.has_dualstack_ipv6(),
        "dry_starts": [dry_start(*given) for given in LOADER_SETTINGS],
    }
    done = subprocess.run(
        [engine_python, "-c", SCRIPT], input=json.dumps(asked), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    found: dict[str, Any] = json.loads(line.removeprefix("ANSWER"))
    return found


def test_the_recorded_options_are_those_of_the_installed_programs(answer: dict[str, Any]) -> None:
    assert answer["options"] == json.loads(OPTIONS.read_text(encoding="utf-8"))


def test_no_abbreviation_that_a_parser_takes_for_a_reserved_flag_gets_through(answer: dict[str, Any]) -> None:
    assert answer["missed"] == {"vllm serve 0.32.0": [], "lmcache server 0.5.6": []}


@pytest.mark.case("B40")
def test_b40_the_cache_server_takes_the_size_to_the_byte(answer: dict[str, Any]) -> None:
    assert answer["sizes"] == SIZES


def test_spellings_are_the_same_to_the_engine_and_to_the_identity(answer: dict[str, Any]) -> None:
    flags = load_neutral().programs[ENGINE]
    for spellings, parsed in zip(SPELLINGS, answer["spellings"], strict=True):
        assert len(set(parsed)) == 1, spellings
        assert len({json.dumps(canonical(argv, flags, "0.32.0")) for argv in spellings}) == 1, spellings


def test_a_dry_start_loads_random_weights_whatever_the_real_loader_is_told(answer: dict[str, Any]) -> None:
    assert answer["loaders"] == ["DummyModelLoader"] * len(LOADER_SETTINGS)


def test_vllms_socket_for_ipv6_takes_ipv4_as_well(answer: dict[str, Any]) -> None:
    """The gate, the relay and the operator's other checks in the pod ask on 127.0.0.1."""
    if not socket.has_dualstack_ipv6():
        unavailable("this kernel has no socket for both families")
    assert answer["reached"] == ["127.0.0.1", "::1"]


def test_lmcache_takes_every_tier_in_its_namespace(answer: dict[str, Any]) -> None:
    namespace = namespace_of(IDENTITY)
    kinds = [kind for kind, _, _ in answer["tiers"]]
    assert kinds == [
        "FSL2AdapterConfig",
        "FSNativeL2AdapterConfig",
        "ValkeyL2AdapterConfig",
        "S3L2AdapterConfig",
        "RESPL2AdapterConfig",
    ]
    disk, limited, valkey, bucket, _ = (found for _, found, _ in answer["tiers"])
    assert disk["base_path"] == limited["base_path"] == f"/l2/{namespace}"
    assert (limited["max_capacity_gb"], answer["tiers"][1][2]) == (1.5, True)
    assert valkey["key_prefix"] == namespace
    assert namespace in bucket["s3_endpoint"]
