"""Verbs of the pod: `python3 /opt/qcs probe | cache-server | engine | ready`."""

from __future__ import annotations

import sys
from pathlib import Path

from .layout import Layout

VERBS = ("probe", "cache-server", "engine", "ready")


def main(arguments: list[str]) -> int:
    """Run one verb; 2 for a wrong command line. Modules are imported late: `ready` runs every few seconds."""
    layout = Layout.from_environ()
    match arguments:
        case ["probe"]:
            from .probe import run_probe

            return run_probe(layout)
        case ["probe-child", result]:
            from .probe import run_child

            return run_child(layout, Path(result))
        case ["cache-server"]:
            from .start import start_cache_server

            return start_cache_server(layout)
        case ["engine"]:
            from .start import start_engine

            return start_engine(layout)
        case ["ready"]:
            from .ready import run_ready

            return run_ready(layout)
    print(f"usage: python3 /opt/qcs {' | '.join(VERBS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
