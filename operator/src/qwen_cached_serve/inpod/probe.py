"""The init container: find N before anything is served, write the report and both argument vectors, or say why not.

The work is done in a child process (`construct`), so that a hanging driver, a killed import or SIGTERM still end in one
coded line; this process needs nothing but the standard library. It leaves no process and no temporary file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from .construct import find_report, refuse_arguments
from .environment import quiet
from .facts import (
    CACHE_SERVER_ARGV_FILE,
    ENGINE_ARGV_FILE,
    REPORT_FILE,
    FactsError,
    ProbeReport,
    ServeSettings,
    dump,
    dumps,
    load,
)
from .flags import cache_server_argv, engine_argv, tokens_per_step
from .layout import Layout, write_atomic
from .message import argv_hash, error_message, termination_message
from .profiles import load_profiles
from .programs import engine_python
from .refusal import Refusal

_CODE = Path(__file__).resolve().parents[2]
"""Folder that runs as `python3 FOLDER probe`: where this package and `__main__.py` lie."""
_PR_SET_PDEATHSIG = 1
_KILL_WAIT_SECONDS = 10


class _Terminated(Exception):  # noqa: N818 - a signal, not an error
    pass


def run_probe(layout: Layout) -> int:
    """Run the probe; 0 when report and argument vectors are written, 1 when the pod cannot serve."""
    try:
        _remove_old_results(layout)
        settings = layout.settings()
        report = _in_child(layout, settings)
        engine, server = engine_argv(settings, report), cache_server_argv(settings, report)
    except Refusal as refusal:
        print(f"qcs probe: {refusal.code}: {refusal.message} {refusal.hint}".rstrip(), file=sys.stderr, flush=True)
        layout.write_termination_message(error_message(refusal.code, refusal.message, refusal.hint))
        return 1
    _write_results(layout, report, engine, server)
    layout.write_termination_message(termination_message(report, argv_hash(engine, server)))
    print(summary(settings, report), flush=True)
    return 0


def summary(settings: ServeSettings, report: ProbeReport) -> str:
    """One line for the log: N and what was derived from it."""
    tokens = tokens_per_step(settings, report.block_size)
    cache = f"chunk {settings.cache.chunk_blocks * report.block_size}, " if settings.cache.enabled else "no cache, "
    device = report.gpus[0].name if report.gpus else settings.engine.accelerator
    return (
        f"qcs probe: N = {report.block_size} tokens (kernel block {report.kernel_block_size}, "
        f"{'+'.join(report.attention_backends)}), {cache}{tokens or 'engine-chosen'} tokens per step; vLLM "
        f"{report.versions.vllm}, LMCache {report.versions.lmcache or '-'}, {report.architecture} on {device}; "
        f"{sum(report.timings_seconds.values()):.1f} s"
    )


def run_child(layout: Layout, result: Path) -> int:
    """The child's whole life: find the report and write it, or the refusal, to `result`."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        data: dict[str, Any] = {"report": dump(find_report(layout.settings()))}
    except Refusal as refusal:
        data = _error(refusal)
    except BaseException as error:
        traceback.print_exc()
        data = _error(classify(error))
    write_atomic(result, json.dumps(data))
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of torch and CUDA can keep an interpreter from ending; there is nothing left to clean up.
    os._exit(0)


def classify(error: BaseException) -> Refusal:
    """Name an exception that came out of vLLM, torch or the hub."""
    words = " ".join(str(error).split()) or type(error).__name__
    lower = words.lower()
    if isinstance(error, MemoryError) or "out of memory" in lower:
        return Refusal("OutOfMemory", words, "Raise spec.engine.resources.limits.memory, or free the GPU.")
    if any(text in lower for text in ("gated repo", "401 client error", "403 client error", "access to model")):
        return Refusal("ModelAccessDenied", words, "Check spec.model.source.huggingFace.tokenSecretKeyRef.")
    if any(text in lower for text in _DEVICE_WORDS):
        return Refusal(
            "DeviceMissing", words, "Check spec.engine.accelerator, the node's driver and its device plugin."
        )
    if "offline" in lower or "couldn't connect to" in lower or "localentrynotfound" in type(error).__name__.lower():
        return Refusal("ModelNotAvailableOffline", words, "Fill spec.model.downloadVolume, or let the pod go online.")
    if isinstance(error, OSError) and ("config.json" in lower or "no such file" in lower or "safetensors" in lower):
        return Refusal("CheckpointMissing", words, "Check spec.model.name and the files of the model.")
    if isinstance(error, OSError | ValueError | RuntimeError | KeyError) and "architecture" in lower:
        return refuse_arguments(words, load_profiles())
    return Refusal("Internal", f"{type(error).__name__}: {words}", "The probe's log holds the traceback.")


_DEVICE_WORDS = (
    "libcuda.so", "device string must not be empty", "failed to infer device type", "no cuda gpus are available",
    "nvml", "cuda driver", "found no nvidia driver", "cuda-capable device",
)  # fmt: skip


def _in_child(layout: Layout, settings: ServeSettings) -> ProbeReport:
    with tempfile.TemporaryDirectory(prefix="qcs-probe-", ignore_cleanup_errors=True) as folder:
        result = Path(folder) / "result.json"
        environ = quiet({**os.environ, "TMPDIR": folder})
        command = [engine_python(), str(_CODE), "probe-child", str(result)]
        try:
            with _sigterm_raises():
                child = subprocess.Popen(command, env=environ, start_new_session=True)
                try:
                    status = child.wait(timeout=settings.probe_timeout_seconds)
                finally:
                    _end_group(child)
        except subprocess.TimeoutExpired as error:
            raise Refusal(
                "Timeout",
                f"the probe did not end within {settings.probe_timeout_seconds} seconds",
                "Raise spec.blockSizeProbe.timeoutSeconds; the probe's log shows how far it came.",
            ) from error
        except _Terminated as error:
            raise Refusal("Terminated", "the probe was told to stop (SIGTERM) before it had ended") from error
        return _child_report(result, status)


def _child_report(result: Path, status: int) -> ProbeReport:
    try:
        data = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if status == -signal.SIGKILL:
            raise Refusal(
                "OutOfMemory",
                "the probe was killed (SIGKILL), most likely for its memory",
                "Raise spec.engine.resources.limits.memory; the probe needs about 4 GiB.",
            ) from error
        what = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise Refusal("Internal", f"the probe ended with {what} and no result", "See the probe's log.") from error
    if "error" in data:
        raise Refusal(data["error"]["code"], data["error"]["message"], data["error"]["hint"])
    try:
        return load(ProbeReport, data["report"])
    except (KeyError, FactsError) as error:
        raise Refusal("Internal", f"the probe's result cannot be read: {error}") from error


def _error(refusal: Refusal) -> dict[str, Any]:
    return {"error": {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}}


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started: its process group is its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=_KILL_WAIT_SECONDS)


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    """As pid 1 the default for SIGTERM is to be ignored; here it ends the probe."""

    def raise_terminated(_signal: int, _frame: FrameType | None) -> None:
        raise _Terminated

    former = {number: signal.signal(number, raise_terminated) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _remove_old_results(layout: Layout) -> None:
    """A report of an earlier attempt in this pod must not be taken for the answer of this one."""
    for name in (REPORT_FILE, ENGINE_ARGV_FILE, CACHE_SERVER_ARGV_FILE):
        with contextlib.suppress(OSError):
            (layout.state / name).unlink(missing_ok=True)


def _write_results(layout: Layout, report: ProbeReport, engine: list[str], server: list[str]) -> None:
    write_atomic(layout.state / ENGINE_ARGV_FILE, json.dumps(engine, indent=1))
    write_atomic(layout.state / CACHE_SERVER_ARGV_FILE, json.dumps(server, indent=1))
    write_atomic(layout.state / REPORT_FILE, dumps(report))
