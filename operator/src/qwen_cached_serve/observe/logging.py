"""Logs: one JSON object a line, ours and those of kopf, aiohttp and the client library alike."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("json", "console")


def configure(level: str = "info", form: str = "json", stream: TextIO | None = None) -> None:
    """Set up structlog and the standard library's logging to write to `stream` (standard error).

    Raises:
        ValueError: an unknown level or format; the message lists the known ones.

    """
    if level not in LEVELS or form not in FORMATS:
        raise ValueError(f"log level must be one of {LEVELS} and format one of {FORMATS}, got {level!r} and {form!r}")
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _kopf_object,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer(sort_keys=False)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_logger_name,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    # One line for every scrape and probe would drown the rest; kopf narrates each handler at INFO.
    for noisy in ("aiohttp.access", "kopf.objects", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _kopf_object(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Say which object a line of kopf is about, under the names our own lines use."""
    reference = getattr(event.get("_record"), "k8s_ref", None)
    if isinstance(reference, dict):
        event.setdefault("kind", reference.get("kind"))
        event.setdefault("namespace", reference.get("namespace"))
        event.setdefault("name", reference.get("name"))
    return event
