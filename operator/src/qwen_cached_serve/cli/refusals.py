"""Why a resource would be refused, from whichever step says so; one place for what people read of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qwen_cached_serve.api.validate import InvalidResource
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.core.accelerators import UnknownGpuError
from qwen_cached_serve.core.budget import BudgetError
from qwen_cached_serve.core.resolve import ResolveError

REFUSALS = (InvalidResource, ResolveError, BudgetError, UnknownGpuError)
"""Errors about what a user wrote; all others are faults of ours."""


def reasons(error: Exception) -> tuple[str, ...]:
    """Return what is wrong, a line each."""
    return tuple(map(str, error.problems)) if isinstance(error, InvalidResource) else (str(error),)


@contextmanager
def told_as_errors(label: str = "", *more: type[Exception]) -> Iterator[None]:
    """Turn refusals into the command's error; `label` tells which resource, where there can be several.

    `more` are refusals of later steps, whose modules only the commands that take them load.

    Raises:
        CliError: a refusal, a line for each reason.

    """
    refusals: tuple[type[Exception], ...] = (*REFUSALS, *more)
    try:
        yield
    except refusals as error:
        start = f"{label}: " if label else ""
        raise CliError("\n".join(f"{start}{reason}" for reason in reasons(error))) from error
