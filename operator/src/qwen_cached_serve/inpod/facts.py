"""What goes into the pod and what comes out of its probe: the types both the operator and the pod's scripts speak.

`ServeSettings` is the pod's input (written by the operator as `settings.json` beside these scripts), `ProbeReport` is
what the probe found out. Both are plain frozen dataclasses, since this module runs in the engine's image with nothing
but the standard library (DESIGN D4). Sizes are bytes, times seconds, block and chunk sizes tokens.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

SCHEMA_VERSION = 1

# Kubernetes keeps 4,096 bytes of a container's termination message and 12 KiB of a whole pod's; three containers and
# their former lives share that, so each of ours stays far below it (DESIGN §3).
TERMINATION_MESSAGE_LIMIT_BYTES = 1024

CODE_DIR = "/opt/qcs"
"""Where the ConfigMap with these scripts and `settings.json` is mounted, read-only."""
STATE_DIR = "/var/run/qcs"
"""emptyDir shared by the pod's containers: report, argument vectors, registrations seen before the engine started."""
CACHE_DIR = "/var/cache/qcs"
"""emptyDir (or the download volume) that holds every writable cache: HOME, hub downloads, compile caches."""
L2_DIR = "/var/lib/qcs-l2"
"""Below it every file-system tier has a mount named like the tier, in the cache server only."""
MODEL_DIR = "/model"
"""Mount of a model volume (PersistentVolumeClaim or Image source), read-only."""

SETTINGS_FILE = "settings.json"
REPORT_FILE = "report.json"
ENGINE_ARGV_FILE = "engine.argv.json"
CACHE_SERVER_ARGV_FILE = "cache-server.argv.json"
KNOWN_REGISTRATIONS_FILE = "registrations-before.json"

IPV4_WILDCARD = "0.0.0.0"
IPV6_WILDCARD = "::"
ENGINE_PORT = 8000
CACHE_SERVER_PORT = 5555  # loopback only
CACHE_SERVER_HTTP_PORT = 8080  # loopback only: unauthenticated /env, /run_script, /cache/clear
RELAY_PORT = 8081


@dataclass(frozen=True, slots=True)
class TokensPerStep:
    """How `--max-num-batched-tokens` follows from the unified block size N."""

    policy: str = "TwoBlocksMinusOne"
    """`TwoBlocksMinusOne` (2N-1), `OneBlock` (N) or `Fixed`."""
    value: int | None = None
    """Tokens, with `Fixed` only."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the user asked of `vllm serve`; `None` leaves the choice to the engine."""

    accelerator: str
    """`GPU` or `CPU`."""
    tensor_parallel_size: int = 1
    gpu_memory_utilization_percent: int = 90
    tokens_per_step: TokensPerStep = TokensPerStep()
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    tuned_max_num_seqs: int | None = None
    """What the operator lowered it to after a start had failed; the user's own number goes before."""
    kv_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    attention_backend: str | None = None
    block_size: int | None = None
    speculative_method: str | None = None
    speculative_tokens: int | None = None
    text_only: bool = True
    shutdown_timeout_seconds: int = 60
    extra_args: tuple[str, ...] = ()
    unsupported_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class L2Tier:
    """One store behind the cache server's memory that outlives the pod."""

    name: str
    type: str
    """`Filesystem`, `Valkey`, `S3` or `Resp`."""
    path: str = ""
    """Absolute path in the pod (Filesystem); the identity's namespace is a directory below it."""
    endpoint: str = ""
    """`HOST:PORT`, or the host of a bucket."""
    region: str = ""
    tls: bool = False
    cluster: bool = False
    """Whether a Valkey's keys are spread over nodes."""
    username: str = ""
    capacity_bytes: int = 0
    """0 = as much as there is."""
    identity: str = ""
    """The one identity that a store without namespaces is dedicated to."""
    secrets: tuple[str, ...] = ()
    """What the container's environment holds for it (`inpod.credentials`), never a value."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What the user asked of `lmcache server`."""

    enabled: bool
    l1_size_bytes: int = 0
    eviction_policy: str = "LRU"
    chunk_blocks: int = 1
    """chunk size = chunk_blocks x N."""
    extra_args: tuple[str, ...] = ()
    unsupported_args: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """`NAME=value` of the user's variables of the cache server, which the probe cannot see; `NAME=source` where the
    value comes from another object."""
    l2: tuple[L2Tier, ...] = ()


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports of the pod's programs; fixed in pods, free ones where several engines share a host (tests)."""

    engine: int = ENGINE_PORT
    cache_server: int = CACHE_SERVER_PORT
    cache_server_http: int = CACHE_SERVER_HTTP_PORT
    relay: int = RELAY_PORT


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The pod's whole input: everything that shapes the two argument vectors except what only the probe can know."""

    model: str
    """Hub id, or an absolute path in the pod."""
    engine: EngineSettings
    cache: CacheSettings
    revision: str | None = None
    """Hub revision as the user wrote it; the probe resolves it to a commit."""
    served_names: tuple[str, ...] = ()
    pod_variables: tuple[str, ...] = ()
    """Variables of the engine whose values are fields of the pod itself (its address, its name): no two pods have the
    same, so they count for the compatibility identity by name only."""
    gpu_count: int = 0
    startup_timeout_seconds: int = 3600
    """From the start of the engine's container until the engine has passed the start-up gate."""
    probe_timeout_seconds: int = 1800
    probe_method: str = "Auto"
    """`Construct`, `DryStart`, or `Auto`: the first, and the second where the first cannot be made to work."""
    ports: Ports = Ports()
    schema: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the probe saw it."""

    name: str
    uuid: str
    capability: str
    """Compute capability, `9.0` for SM90."""
    driver: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of what runs in the image, as the distributions report them; empty when absent."""

    vllm: str
    lmcache: str = ""
    torch: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What the probe measured; `block_size` is N, vLLM's unified attention block size, in tokens."""

    block_size: int
    kernel_block_size: int
    """Tokens of the attention kernel's own block; 0 = not known (a dry start ends before it is chosen)."""
    attention_backends: tuple[str, ...]
    versions: Versions
    method: str
    """How N was found: `Construct` (layers on the meta device) or `DryStart` (the engine's own log or metrics)."""
    construct_failure: str = ""
    """Why `Construct` did not work, where `Auto` went on to `DryStart`."""
    architecture: str = ""
    gdn_prefill_backend: str = ""
    mamba_cache_mode: str = ""
    kv_cache_dtype: str = ""
    """After resolution: a checkpoint can turn `auto` into fp8."""
    mamba_ssm_cache_dtype: str = ""
    prefix_caching: bool = True
    page_padding_bytes: int = 0
    """Bytes by which a Mamba page is padded up to the attention page; 0 = they are equal, -1 = padded, the bytes
    are not known (a dry start)."""
    max_model_len: int = 0
    model_revision: str = ""
    """Resolved commit of a hub id, empty for a path."""
    gpus: tuple[Gpu, ...] = ()
    node: str = ""
    engine_host: str = IPV4_WILDCARD
    """Where the engine listens (`inpod.addresses`): `::` in a pod with an IPv6 address."""
    identity: str = ""
    """Compatibility identity (DESIGN D7); empty without a cache."""
    identity_summary: str = ""
    """Its short form for people."""
    identity_components: dict[str, str] = field(default_factory=dict)
    """What it is the hash of; secrets are masked."""
    timings_seconds: dict[str, float] = field(default_factory=dict)
    schema: int = SCHEMA_VERSION


class FactsError(ValueError):
    """A settings or report file that does not have the expected shape; the message names the field."""


T = TypeVar("T")


def dump(value: Any) -> dict[str, Any]:
    """Turn one of this module's dataclasses into JSON data (keys as the fields are named)."""
    return dataclasses.asdict(value)


def dumps(value: Any) -> str:
    """Canonical JSON text of one of this module's dataclasses: sorted keys, so equal values give equal bytes."""
    # Not escaped: four bytes would become twelve, and the largest spec would not fit into a ConfigMap (case B60).
    return json.dumps(dump(value), sort_keys=True, indent=1, default=list, ensure_ascii=False)


def load(kind: type[T], data: Any) -> T:
    """Build `kind` from JSON data.

    Raises:
        FactsError: a field is missing, unknown or of another type; the message names it.

    """
    return typing.cast(T, _build(kind, data, kind.__name__))


def _build(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, data, where)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if data is None else _build(next(a for a in args if a is not type(None)), data, where)
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise FactsError(f"{where}: expected a list, got {type(data).__name__}")
        return tuple(_build(args[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is dict:
        if not isinstance(data, dict):
            raise FactsError(f"{where}: expected an object, got {type(data).__name__}")
        return {str(k): _build(args[1], v, f"{where}.{k}") for k, v in data.items()}
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise FactsError(f"{where}: expected {kind.__name__}, got {type(data).__name__}")
    return data


def _build_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise FactsError(f"{where}: expected an object, got {type(data).__name__}")
    hints = typing.get_type_hints(kind)
    known = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise FactsError(f"{where}: unknown field {unknown[0]!r}")
    values = {}
    for name, spec in known.items():
        if name in data:
            values[name] = _build(hints[name], data[name], f"{where}.{name}")
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise FactsError(f"{where}: field {name!r} is missing")
    return kind(**values)
