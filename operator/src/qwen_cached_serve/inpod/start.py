"""Start the two programs with the arguments that the probe wrote, after checking that this container is the probed
one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from . import credentials, forward
from .environment import quiet
from .former_life import let_go, registrations, renew
from .gpus import check_same_gpus, visible_gpus
from .layout import Layout
from .life import begin_life, gate_passed, noted
from .namespaces import prepare
from .programs import locate
from .refusal import Refusal
from .refusing import refuse
from .shm import remove_leftovers
from .supervise import Supervisor

_LOADING_STOP_SECONDS = 5.0
"""An engine that still loads gets that long to end after SIGTERM: it has no request to finish, and vLLM's own way out
waits for its engine process, which does not listen before it has loaded.
"""


def start_engine(layout: Layout, clock: Callable[[], float] = time.monotonic) -> int:
    """Run `vllm serve …` for the life of the container."""
    began = clock()
    _end_on_sigterm()
    try:
        settings = layout.settings()
        report = layout.report()
        argv = layout.engine_argv()
        check_same_gpus(report.gpus, visible_gpus() if report.gpus else None, exclusive=True)
        known, gone = _former_life(layout, settings.ports.cache_server_http) if settings.cache.enabled else ([], True)
        removed = remove_leftovers(layout.shm, empty=gone)
        if removed.names:
            print(
                f"qcs engine: removed {len(removed.names)} leftover segments of a former life from {layout.shm} "
                f"({removed.bytes >> 20} MiB): {', '.join(removed.names[:4])}",
                flush=True,
            )
        layout.gate.unlink(missing_ok=True)
        program = locate(argv[0])
    except Refusal as refusal:
        return refuse(layout, "engine", refusal)
    return forward.run(
        [program, *argv[1:]],
        quiet(os.environ),
        begin=lambda: begin_life(layout.registrations, known),
        may_drain=lambda: gate_passed(layout.registrations, layout.gate),
        # The drain time is derived from the pod's grace period and shorter than it, whatever the user has set.
        patience_seconds=min(_LOADING_STOP_SECONDS, settings.engine.shutdown_timeout_seconds),
        limit=forward.StartLimit(
            ends=began + settings.startup_timeout_seconds,
            overdue=lambda: refuse(layout, "engine", _overdue(layout, settings.startup_timeout_seconds)),
            clock=clock,
        ),
    )


def _overdue(layout: Layout, seconds: int) -> Refusal:
    """Name what the gate waits for; the kubelet, which runs it, cannot: it kills a run that hangs and counts it as one.

    The gate's last look is from a file, since this process must not wait for a program that may hang.
    """
    seen = noted(layout.seen, layout.registrations) or "nothing of this engine"
    return Refusal(
        "StartupTimeout",
        f"the engine has not passed the start-up gate {seconds} s after its container's start; the gate saw last: "
        f"{seen}",
        "Raise spec.engine.startupTimeoutSeconds if the model was still loading, or keep downloads and compile caches "
        "(spec.model.downloadVolume). Otherwise see the logs of containers engine (--previous) and cache-server.",
    )


def _former_life(layout: Layout, port: int) -> tuple[list[str], bool]:
    """Ids of a former life's workers, and whether the cache server has let go of all of them."""
    known = registrations(port)
    began = time.monotonic()
    gone = let_go(port, known, layout.cache_server_argv())
    what = "the cache server let go"
    if not gone and layout.alive.exists():  # it has a supervisor
        gone = renew(layout.renewal, port, known)
        what = "a new cache server was needed, the old one kept hold" if gone else "the cache server has not let go"
    if known:
        waited = time.monotonic() - began
        print(f"qcs engine: {what} of a former life's memory after {waited:.0f} s", flush=True)
    return known, gone


def start_cache_server(layout: Layout) -> int:
    """Supervise `lmcache server …` for the life of the container."""
    _end_on_sigterm()
    try:
        settings = layout.settings()
        report = layout.report()
        argv = layout.cache_server_argv()
        if not argv:
            raise Refusal("SettingsInvalid", "the cache is off, so there is no cache server to start")
        prepare(settings, report)
        check_same_gpus(report.gpus, visible_gpus() if report.gpus else None, exclusive=False)
        locate(argv[0])
        command = credentials.command(settings.cache.l2, argv)
    except Refusal as refusal:
        return refuse(layout, "cache-server", refusal)
    return Supervisor(layout, settings, command).run()


def _end_on_sigterm() -> None:
    """Until the program runs: as pid 1 this process would not be ended by a signal that it has no handler for."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
