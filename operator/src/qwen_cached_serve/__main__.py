"""`python -m qwen_cached_serve`: run the operator."""

from __future__ import annotations

import asyncio
import sys

from qwen_cached_serve import app, settings
from qwen_cached_serve.kube.connection import ConnectionFailed
from qwen_cached_serve.observe import logging


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM, or until the leadership is lost; return the exit status."""
    try:
        chosen = settings.load(sys.argv[1:] if argv is None else argv)
        logging.configure(chosen.log_level, chosen.log_format)
        return asyncio.run(app.run(chosen))
    except (settings.SettingsError, ConnectionFailed) as error:
        print(f"qwen-cached-serve-operator: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
