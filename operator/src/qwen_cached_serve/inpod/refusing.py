"""How a container of the pod says why it does not go on: a line in its log and its termination message."""

from __future__ import annotations

import sys

from .layout import Layout
from .message import error_message
from .refusal import Refusal


def refuse(layout: Layout, verb: str, refusal: Refusal) -> int:
    """Say it, and return the exit status for the container."""
    print(f"qcs {verb}: {refusal.code}: {refusal.message} {refusal.hint}".rstrip(), file=sys.stderr, flush=True)
    layout.write_termination_message(error_message(refusal.code, refusal.message, refusal.hint))
    return 1
