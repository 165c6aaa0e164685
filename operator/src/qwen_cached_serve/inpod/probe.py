"""The init container: find N before anything is served, write the report and both argument vectors, or say why not.

The work is done in child processes (`stage`); this process needs nothing but the standard library. With method Auto N
is found by `construct`, and where that cannot be made to work with the image by `dry_start`. There is no third way: a
formula knows neither the GPU nor the release, so its N never becomes a flag.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import construct, dry_start
from .addresses import wildcard
from .classify import CONSTRUCT_FAILED, classify
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
from .forward import die_with_parent
from .identity import attach
from .layout import Layout, write_atomic
from .message import argv_hash, termination_message
from .programs import engine_python
from .refusal import Refusal
from .refusing import refuse
from .shm import remove_leftovers
from .stage import Crashed, Terminated, TimeIsUp, error_data, run_stage, stop_raises

CONSTRUCT, DRY_START = "Construct", "DryStart"
METHODS: dict[str, tuple[str, ...]] = {
    "Auto": (CONSTRUCT, DRY_START),
    CONSTRUCT: (CONSTRUCT,),
    DRY_START: (DRY_START,),
}
"""`spec.blockSizeProbe.method` → the ways that are tried, in order."""
FALLS_THROUGH = frozenset({CONSTRUCT_FAILED})
"""Codes after which the next way is tried: construct could not ask vLLM (another Python API, an exception that nothing
explains, a crash, an answer that does not hold together). Every other refusal is about the pod and is final: an engine
started dry would meet the same device, checkpoint, arguments, memory or clock.
"""
_FINDERS: dict[str, Callable[[ServeSettings], ProbeReport]] = {
    CONSTRUCT: construct.find_report,
    DRY_START: dry_start.find_report,
}
VERBS = {CONSTRUCT: "probe-construct", DRY_START: "probe-dry-start"}
"""Verbs of the child processes."""


def run_probe(layout: Layout) -> int:
    """Run the probe; 0 when report and argument vectors are written, 1 when the pod cannot serve."""
    try:
        with stop_raises():
            _remove_old_results(layout)
            settings = layout.settings()
            report = dataclasses.replace(_find(layout, settings), engine_host=wildcard())
            engine, server = engine_argv(settings, report), cache_server_argv(settings, report)
            _write_results(layout, report, engine, server)
    except Terminated:
        refusal = Refusal("Terminated", "the probe was told to stop (SIGTERM) before it had ended")
        return refuse(layout, "probe", refusal)
    except Refusal as refused:
        return refuse(layout, "probe", refused)
    except OSError as error:
        hint = "See whether the node's disk is full, and spec.pod.volumes."
        return refuse(layout, "probe", Refusal("Internal", f"{type(error).__name__}: {error}", hint))
    layout.write_termination_message(termination_message(report, argv_hash(engine, server)))
    print(f"qcs probe: report {json.dumps(dump(report), sort_keys=True)}", flush=True)
    print(summary(settings, report), flush=True)
    return 0


def summary(settings: ServeSettings, report: ProbeReport) -> str:
    """One line for the log: N and what was derived from it."""
    tokens = tokens_per_step(settings, report.block_size)
    cache = f"chunk {settings.cache.chunk_blocks * report.block_size}, " if settings.cache.enabled else "no cache, "
    device = report.gpus[0].name if report.gpus else settings.engine.accelerator
    kernel = report.kernel_block_size or "unknown"
    return (
        f"qcs probe: N = {report.block_size} tokens by {report.method} (kernel block {kernel}, "
        f"{'+'.join(report.attention_backends) or 'backend not told'}), {cache}{tokens or 'engine-chosen'} tokens per "
        f"step; vLLM {report.versions.vllm}, LMCache {report.versions.lmcache or '-'}, {report.architecture} on "
        f"{device}; {sum(report.timings_seconds.values()):.1f} s"
    )


def run_child(layout: Layout, method: str, result: Path) -> int:
    """The child's whole life: find the report and write it, or the refusal, to `result`."""
    die_with_parent()
    # A fifth of an import of vLLM is collections that find nothing (docs/measurements.md), and nothing here lives long.
    gc.disable()
    # As it is before vLLM is imported, which adds variables of its own.
    environ = dict(os.environ)
    try:
        settings = layout.settings()
        data: dict[str, Any] = {"report": dump(attach(settings, _found(settings, method), environ))}
    except Refusal as refusal:
        data = error_data(refusal)
    except BaseException as error:
        traceback.print_exc()
        hint = "The probe's log holds the traceback."
        data = error_data(Refusal("Internal", f"{type(error).__name__}: {error}", hint))
    write_atomic(result, json.dumps(data))
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of torch and CUDA can keep an interpreter from ending; there is nothing left to clean up.
    os._exit(0)


def _found(settings: ServeSettings, method: str) -> ProbeReport:
    try:
        return _FINDERS[method](settings)
    except Exception as error:
        if method != CONSTRUCT or isinstance(error, Refusal):
            raise
        traceback.print_exc()
        raise classify(error) from error


def _find(layout: Layout, settings: ServeSettings) -> ProbeReport:
    methods = METHODS.get(settings.probe_method)
    if methods is None:
        known = ", ".join(METHODS)
        raise Refusal(
            "SettingsInvalid",
            f"unknown probe method {settings.probe_method!r}; there are {known}",
            "Correct spec.blockSizeProbe.method.",
        )
    deadline = time.monotonic() + settings.probe_timeout_seconds
    why = ""
    for method in methods:
        try:
            report = _try(layout, settings, method, deadline)
        except Refusal as refusal:
            if refusal.code not in FALLS_THROUGH or method == methods[-1]:
                raise
            why = refusal.message
            print(f"qcs probe: {method} does not work with this image, going on: {why}", file=sys.stderr, flush=True)
        else:
            return dataclasses.replace(report, construct_failure=why)
    raise AssertionError("the last method returns or raises")


def _try(layout: Layout, settings: ServeSettings, method: str, deadline: float) -> ProbeReport:
    try:
        return load(ProbeReport, run_stage(engine_python(), VERBS[method], deadline)["report"])
    except TimeIsUp as error:
        raise Refusal(
            "Timeout",
            f"the probe ({method}) did not end within {settings.probe_timeout_seconds} seconds",
            "Raise spec.blockSizeProbe.timeoutSeconds; the probe's log shows how far it came.",
        ) from error
    except Crashed as crash:
        raise _explain_crash(crash, method) from crash
    except (KeyError, FactsError) as error:
        raise Refusal("Internal", f"the probe's result cannot be read: {error}") from error
    finally:
        if method == DRY_START:
            remove_leftovers(layout.shm)  # an engine that had to be killed leaves its shared memory


def _explain_crash(crash: Crashed, method: str) -> Refusal:
    if crash.status == -signal.SIGKILL:
        return Refusal(
            "OutOfMemory",
            "the probe was killed (SIGKILL), most likely for its memory",
            "Raise spec.engine.resources.limits.memory; the probe needs about 4 GiB.",
        )
    return Refusal(CONSTRUCT_FAILED if method == CONSTRUCT else "Internal", str(crash), "See the probe's log.")


def _remove_old_results(layout: Layout) -> None:
    """A report of an earlier attempt in this pod must not be taken for the answer of this one."""
    for name in (REPORT_FILE, ENGINE_ARGV_FILE, CACHE_SERVER_ARGV_FILE):
        with contextlib.suppress(OSError):
            (layout.state / name).unlink(missing_ok=True)


def _write_results(layout: Layout, report: ProbeReport, engine: list[str], server: list[str]) -> None:
    write_atomic(layout.state / ENGINE_ARGV_FILE, json.dumps(engine, indent=1))
    write_atomic(layout.state / CACHE_SERVER_ARGV_FILE, json.dumps(server, indent=1))
    write_atomic(layout.state / REPORT_FILE, dumps(report))
