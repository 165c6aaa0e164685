"""The rules about arguments against the installed parsers: names, abbreviations, units."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod.facts import CacheSettings, EngineSettings, ProbeReport, ServeSettings, Versions
from qwen_cached_serve.inpod.flags import (
    RESERVED_CACHE_SERVER_FLAGS,
    RESERVED_ENGINE_FLAGS,
    FlagTable,
    cache_server_argv,
    reserved_pattern,
)

pytestmark = pytest.mark.timeout(900)

OPTIONS = Path(__file__).resolve().parents[1] / "unit/inpod/fixtures/options.json"

SCRIPT = """
import argparse, json, re, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from lmcache.cli.commands.server import ServerCommand
from lmcache.v1.distributed.config import parse_args_to_config

class Ambiguous(Exception):
    pass

def refuse(message):
    raise Ambiguous(message)

asked = json.load(sys.stdin)
server = argparse.ArgumentParser()
ServerCommand().add_arguments(server)
parsers = {"vllm serve 0.32.0": make_arg_parser(FlexibleArgumentParser()), "lmcache server 0.5.6": server}
answer = {"options": {}, "missed": {}, "sizes": []}
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
print("ANSWER" + json.dumps(answer))
"""

SIZES = [1 << 30, 60 << 30, 64 << 30, 100 << 30, 1_000_000_000, (3 << 30) + 4096, 123_456_789_123]


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
