"""The arguments of `lmcache server`."""

from __future__ import annotations

from .facts import ProbeReport, ServeSettings
from .flag import LOOPBACK, Flag, to_json, verbatim
from .namespaces import adapter, checked_identity
from .profiles import LMCacheProfile, Profiles, load_profiles
from .refusal import Refusal

_GIB = 1 << 30

REAP_FLAG = "--worker-reap-timeout-seconds"
REAP_SECONDS = 30
"""`--worker-reap-timeout-seconds`, the smallest LMCache takes: a dead engine's GPU memory stays mapped that long."""


def cache_server_flags(settings: ServeSettings, report: ProbeReport, profiles: Profiles | None = None) -> list[Flag]:
    """Every argument of `lmcache server`, in order; empty when the cache is off."""
    if not settings.cache.enabled:
        return []
    profile = (profiles or load_profiles()).for_lmcache(report.versions.lmcache)
    chunk = settings.cache.chunk_blocks * report.block_size
    ports = settings.ports
    loopback = "its API has no authentication; only the engine beside it needs it"
    flags = [
        Flag("--host", (LOOPBACK,), loopback, "rule"),
        Flag("--port", (str(ports.cache_server),), "where the engine's connector looks for it", "rule"),
        Flag("--http-host", (LOOPBACK,), _http_host_reason(loopback, profile), "rule"),
        Flag("--http-port", (str(ports.cache_server_http),), _http_port_reason(profile), "rule"),
        Flag(
            "--chunk-size",
            (str(chunk),),
            f"{settings.cache.chunk_blocks} x N ({report.block_size}): recurrent state exists only at block ends",
            "spec.cache.chunkBlocks",
        ),
    ]
    if profile.separate_object_groups:
        why = "recurrent layers get objects of their own; LMCache's documentation requires it for hybrid models"
        flags.append(Flag("--separate-object-groups", (), why, "profile"))
    if profile.isolated_ipc and settings.engine.accelerator == "GPU":
        why = "GPU memory is shared without hostIPC or a common /dev/shm; must match the connector"
        flags.append(Flag("--isolated-ipc", (), why, "profile"))
    size = _gib(settings.cache.l1_size_bytes)
    why = "LMCache's GB are GiB (2^30 bytes), so this is the size in bytes exactly"
    flags.append(Flag("--l1-size-gb", (size,), why, "spec.cache.l1.size"))
    policy = settings.cache.eviction_policy
    flags.append(Flag("--eviction-policy", (policy,), "the cache server demands one", "spec.cache.l1.evictionPolicy"))
    if profile.reap_timeout:
        why = "the server lets go of a dead engine's GPU memory before the next life needs it (LMCache#5265)"
        flags.append(Flag(REAP_FLAG, (str(REAP_SECONDS),), why, "rule"))
    if settings.engine.tensor_parallel_size > 1:
        why = "one worker thread per tensor-parallel rank; with one thread ranks wait for each other (LMCache#4247)"
        value = str(settings.engine.tensor_parallel_size)
        flags.append(Flag("--max-gpu-workers", (value,), why, "spec.engine.vllm.tensorParallelSize"))
    if settings.cache.l2:
        identity = checked_identity(report)
        why = "a namespace of the compatibility identity's own: no other engine's entries can be read there"
        flags += [Flag("--l2-adapter", (to_json(adapter(tier, identity)),), why, "spec.cache.l2")
                  for tier in settings.cache.l2]  # fmt: skip
    return flags + verbatim(settings.cache.extra_args, settings.cache.unsupported_args, "spec.cache", "cacheServerArgs")


def _http_host_reason(loopback: str, profile: LMCacheProfile) -> str:
    reason = f"{loopback} and the read-only relay"
    if profile.http_host_default != LOOPBACK:
        reason += f"; this release would listen on {profile.http_host_default}"
    return reason


def _http_port_reason(profile: LMCacheProfile) -> str:
    reason = "where the relay and the start-up gate look for it"
    if profile.prometheus_port == "Ignored":
        reason += "; metrics are here too, nothing listens on a port of their own"
    return reason


def _gib(size: int) -> str:
    """Bytes as GiB in the shortest decimal form that gives the same bytes back: `int(float(text) * 2**30) == size`."""
    if size <= 0:
        raise Refusal("SettingsInvalid", f"cache.l1.size is {size} bytes", "Set spec.cache.l1.size to a positive size.")
    return repr(size / _GIB).removesuffix(".0")
