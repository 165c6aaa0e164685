"""The engine's preStop hook: time for clients to go elsewhere, which only an engine that has served needs."""

from __future__ import annotations

import time

from .layout import Layout
from .life import gate_passed

_LOOK_EVERY_SECONDS = 0.5


def run_drain(layout: Layout, seconds: float) -> int:
    """Wait `seconds`, as long as there is an engine that has passed its gate; returns at once where there is none.

    An engine that still loads is in no Service, and the kubelet sends SIGTERM only after this hook: waiting here would
    only make its end later.
    """
    end = time.monotonic() + seconds
    if gate_passed(layout.registrations, layout.gate):
        print(f"qcs drain: {seconds:.0f} s for clients to go elsewhere", flush=True)
    while (left := end - time.monotonic()) > 0 and gate_passed(layout.registrations, layout.gate):
        time.sleep(min(left, _LOOK_EVERY_SECONDS))
    return 0
