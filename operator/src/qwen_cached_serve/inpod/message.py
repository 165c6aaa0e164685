"""The termination message: written in the pod, read by the operator, always below 1,024 bytes of UTF-8.

Kubernetes keeps 4,096 bytes of one container's message and 12 KiB of a pod's (DESIGN §3). A report that does not fit
loses what the operator can do without, in the order of `_DISPENSABLE`, until it does; N, the argv hash and the
identity are never lost.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .facts import SCHEMA_VERSION, TERMINATION_MESSAGE_LIMIT_BYTES, ProbeReport

_TEXT_CHARACTERS = 80
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LIST_ITEMS = 16
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
"""What Kubernetes takes as a condition's reason; anything can write a termination message."""
_LARGEST = 2**63 - 1
"""Of an integer in a Kubernetes object."""


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What of a `ProbeReport` fits into a termination message."""

    schema: int
    block_size: int
    kernel_block_size: int
    """0 = not known."""
    argv_hash: str
    attention_backends: tuple[str, ...] = ()
    vllm: str = ""
    lmcache: str = ""
    mamba_cache_mode: str = ""
    kv_cache_dtype: str = ""
    mamba_ssm_cache_dtype: str = ""
    gdn_prefill_backend: str = ""
    architecture: str = ""
    model_revision: str = ""
    max_model_len: int = 0
    page_padding_bytes: int = 0
    prefix_caching: bool = True
    gpu_name: str = ""
    gpu_capability: str = ""
    gpu_driver: str = ""
    gpu_uuids: tuple[str, ...] = ()
    probe_seconds: float = 0.0
    identity: str = ""
    """Compatibility identity; empty without a cache and from a probe that did not know it yet."""
    identity_summary: str = ""
    method: str = "Construct"
    """How N was found."""
    construct_failure: str = ""


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """A coded refusal as the operator reads it."""

    code: str
    message: str
    hint: str = ""


_KEYS = {
    "schema": "schema",
    "block_size": "blockSize",
    "kernel_block_size": "kernelBlock",
    "argv_hash": "argvHash",
    "attention_backends": "backends",
    "vllm": "vllm",
    "lmcache": "lmcache",
    "mamba_cache_mode": "mambaMode",
    "kv_cache_dtype": "kvDtype",
    "mamba_ssm_cache_dtype": "ssmDtype",
    "gdn_prefill_backend": "gdn",
    "architecture": "arch",
    "model_revision": "revision",
    "max_model_len": "maxLen",
    "page_padding_bytes": "padding",
    "prefix_caching": "prefixCaching",
    "gpu_name": "gpu",
    "gpu_capability": "capability",
    "gpu_driver": "driver",
    "gpu_uuids": "gpuUuids",
    "probe_seconds": "seconds",
    "identity": "identity",
    "identity_summary": "summary",
    "method": "method",
    "construct_failure": "constructFailure",
}
_DISPENSABLE = (
    "construct_failure", "probe_seconds", "identity_summary", "gpu_uuids", "gpu_driver", "gpu_name", "architecture",
    "max_model_len", "gpu_capability", "gdn_prefill_backend", "mamba_ssm_cache_dtype", "kv_cache_dtype",
    "mamba_cache_mode", "attention_backends", "method", "model_revision", "lmcache", "vllm",
)  # fmt: skip


def argv_hash(*argvs: Sequence[str]) -> str:
    """Hash of argument vectors, 16 hexadecimal digits: equal exactly when every argument is."""
    text = json.dumps([list(argv) for argv in argvs], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def compact(report: ProbeReport, argv_digest: str) -> CompactReport:
    """Keep of a report what the operator's status and decisions need."""
    first = report.gpus[0] if report.gpus else None
    return CompactReport(
        schema=report.schema,
        block_size=report.block_size,
        kernel_block_size=report.kernel_block_size,
        argv_hash=argv_digest,
        attention_backends=report.attention_backends,
        vllm=report.versions.vllm,
        lmcache=report.versions.lmcache,
        mamba_cache_mode=report.mamba_cache_mode,
        kv_cache_dtype=report.kv_cache_dtype,
        mamba_ssm_cache_dtype=report.mamba_ssm_cache_dtype,
        gdn_prefill_backend=report.gdn_prefill_backend,
        architecture=report.architecture,
        model_revision=report.model_revision,
        max_model_len=report.max_model_len,
        page_padding_bytes=report.page_padding_bytes,
        prefix_caching=report.prefix_caching,
        gpu_name=first.name if first else "",
        gpu_capability=first.capability if first else "",
        gpu_driver=first.driver if first else "",
        gpu_uuids=tuple(gpu.uuid for gpu in report.gpus),
        probe_seconds=round(sum(report.timings_seconds.values()), 1),
        identity=report.identity,
        identity_summary=report.identity_summary,
        method=report.method,
        construct_failure=report.construct_failure,
    )


def termination_message(report: ProbeReport, argv_digest: str) -> str:
    """Write the success message of the probe; below 1,024 bytes, whatever the report holds."""
    data = {_KEYS[name]: _clip(value) for name, value in dataclasses.asdict(compact(report, argv_digest)).items()}
    defaults = {_KEYS[f.name]: f.default for f in dataclasses.fields(CompactReport)}
    data = {key: value for key, value in data.items() if value != defaults[key] and value != []}
    for name in _DISPENSABLE:
        if _bytes(data) < TERMINATION_MESSAGE_LIMIT_BYTES:
            break
        data.pop(_KEYS[name], None)
    return _json(data)


def error_message(code: str, message: str, hint: str = "") -> str:
    """Write a failure message; below 1,024 bytes, message and hint are shortened to fit."""
    code, message, hint = _clip(code), clean(message), clean(hint)
    hint = _shorten_until(lambda text: _bytes(_error(code, "", text)) < TERMINATION_MESSAGE_LIMIT_BYTES // 2, hint)
    message = _shorten_until(lambda text: _bytes(_error(code, text, hint)) < TERMINATION_MESSAGE_LIMIT_BYTES, message)
    return _json(_error(code, message, hint))


def read(text: str) -> CompactReport | ProbeFailure | None:
    """Read a termination message; None when it is not one of ours (empty, a program's own words, cut off).

    Anything that runs in the container can have written it: texts are cut as the writer cuts them, and a code that
    cannot be a condition's reason is not one of ours, so that what is read fits into the resource's status. Keys that a
    newer writer added are ignored, so that an older operator still reads N.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if isinstance(error := data.get("error"), dict):
        code, message, hint = (error.get(key, "") for key in ("code", "message", "hint"))
        if not all(isinstance(part, str) for part in (code, message, hint)):
            return None
        if _CODE.fullmatch(code):
            return ProbeFailure(code, message, hint)
        return None
    return _read_report(data)


def _read_report(data: dict[str, Any]) -> CompactReport | None:
    values: dict[str, Any] = {}
    for spec in dataclasses.fields(CompactReport):
        key = _KEYS[spec.name]
        if key not in data:
            if spec.default is dataclasses.MISSING:
                return None
            continue
        value = data[key]
        expected = type(spec.default) if spec.default is not dataclasses.MISSING else _REQUIRED[spec.name]
        if expected is tuple and isinstance(value, list) and all(isinstance(item, str) for item in value):
            value = tuple(value)
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected or (isinstance(value, int) and not 0 <= value <= _LARGEST):
            return None
        values[spec.name] = tuple(_clip(value)) if expected is tuple else _clip(value)
    if values["block_size"] <= 0 or values["schema"] < SCHEMA_VERSION:
        return None
    return CompactReport(**values)


_REQUIRED: dict[str, type] = {"schema": int, "block_size": int, "kernel_block_size": int, "argv_hash": str}


def _error(code: str, message: str, hint: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": hint}}


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _bytes(data: dict[str, Any]) -> int:
    return len(_json(data).encode("utf-8"))


def clean(text: str) -> str:
    """Make one line of a text, without colours, control characters and lone surrogates, so that it can be shown."""
    plain = _COLOUR.sub("", text)
    printable = "".join(character if character.isprintable() else " " for character in plain)
    return " ".join(printable.split())


def _clip(value: Any) -> Any:
    if isinstance(value, str):
        text = clean(value)
        return text if len(text) <= _TEXT_CHARACTERS else text[: _TEXT_CHARACTERS - 1] + "…"
    if isinstance(value, list | tuple):
        return [_clip(item) for item in value[:_LIST_ITEMS]]
    return value


def _shorten_until(fits: Callable[[str], bool], text: str) -> str:
    if fits(text):
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(text[:middle].rstrip() + "…"):
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + "…"
