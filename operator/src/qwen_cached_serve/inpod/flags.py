"""From settings and probed facts to the two argument vectors: every flag with its value, its reason and its source.

Pure. The probe runs `probe_argv`, the engine `engine_argv`: they agree on every flag that shapes N, since both start
from `shaping_flags`. Figures follow DESIGN §4; what differs between releases comes from `profiles`. This module is the
door: the rules live in `engine_flags`, `cache_server_flags`, `reserved` and `reserved_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable

from .cache_server_flags import REAP_SECONDS, cache_server_flags
from .engine_flags import HEARTBEAT_SECONDS, MESSAGE_TIMEOUT_SECONDS, engine_flags, own_arguments, shaping_flags
from .facts import ProbeReport, ServeSettings
from .flag import Flag, tokens_per_step
from .profiles import Profiles, load_profiles
from .reserved import (
    FIRST_ITEM_PATTERN,
    FlagTable,
    Problem,
    ReservedFlag,
    ReservedVariable,
    check_env,
    check_extra_args,
    reserved_env_pattern,
    reserved_pattern,
)
from .reserved_tables import RESERVED_CACHE_SERVER_FLAGS, RESERVED_ENGINE_FLAGS, RESERVED_ENV, WARNED_ENV

__all__ = [
    "FIRST_ITEM_PATTERN",
    "HEARTBEAT_SECONDS",
    "MESSAGE_TIMEOUT_SECONDS",
    "REAP_SECONDS",
    "RESERVED_CACHE_SERVER_FLAGS",
    "RESERVED_ENGINE_FLAGS",
    "RESERVED_ENV",
    "WARNED_ENV",
    "Flag",
    "FlagTable",
    "Problem",
    "ReservedFlag",
    "ReservedVariable",
    "cache_server_argv",
    "cache_server_flags",
    "check_env",
    "check_extra_args",
    "engine_argv",
    "engine_flags",
    "probe_argv",
    "reserved_env_pattern",
    "reserved_pattern",
    "tokens_per_step",
]


def engine_argv(settings: ServeSettings, report: ProbeReport, profiles: Profiles | None = None) -> list[str]:
    """Whole command line of the engine, program first."""
    return ["vllm", "serve", *_argv(engine_flags(settings, report, profiles))]


def cache_server_argv(settings: ServeSettings, report: ProbeReport, profiles: Profiles | None = None) -> list[str]:
    """Whole command line of the cache server, program first; empty when the cache is off."""
    flags = cache_server_flags(settings, report, profiles)
    return ["lmcache", "server", *_argv(flags)] if flags else []


def probe_argv(settings: ServeSettings, vllm: str, lmcache: str, profiles: Profiles | None = None) -> list[str]:
    """Command line of the engine without what depends on N: what the probe parses to find N (case B17).

    `vllm` and `lmcache` are the versions in the image.
    """
    flags = shaping_flags(settings, vllm, lmcache, profiles or load_profiles())
    return ["vllm", "serve", *_argv([*flags, *own_arguments(settings)])]


def _argv(flags: Iterable[Flag]) -> list[str]:
    return [argument for flag in flags for argument in flag.argv()]
