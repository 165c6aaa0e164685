"""Verbs of the pod: `python3 /opt/qcs probe | cache-server | engine | ready | drain SECONDS`."""

from __future__ import annotations

import sys
from pathlib import Path

from .layout import Layout

VERBS = ("probe", "cache-server", "engine", "ready", "drain SECONDS")


def main(arguments: list[str]) -> int:
    """Run one verb; 2 for a wrong command line. Modules are imported late: `ready` runs every few seconds."""
    layout = Layout.from_environ()
    match arguments:
        case ["probe"]:
            from .probe import run_probe

            return run_probe(layout)
        case [("probe-construct" | "probe-dry-start") as verb, result]:
            from .probe import VERBS as CHILD_VERBS
            from .probe import run_child

            (method,) = (name for name, known in CHILD_VERBS.items() if known == verb)
            return run_child(layout, method, Path(result))
        case ["cache-server"]:
            from .start import start_cache_server

            return start_cache_server(layout)
        case ["lmcache-server"]:
            from .credentials import run_lmcache

            return run_lmcache(layout)
        case ["engine"]:
            from .start import start_engine

            return start_engine(layout)
        case ["ready"]:
            from .ready import run_ready

            return run_ready(layout)
        case ["drain", seconds] if seconds.isdecimal():
            from .drain import run_drain

            return run_drain(layout, float(seconds))
    print(f"usage: python3 /opt/qcs {' | '.join(VERBS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
