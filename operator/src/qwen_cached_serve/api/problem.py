"""One reason why a resource is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """Where, what, and what to do about it."""

    field: str
    """Path in the resource, as in `spec.engine.env[0].name`; empty for the whole document."""
    message: str
    """What is wrong."""
    remedy: str
    """What to do."""

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.field}: {self.message}; {self.remedy}".removeprefix(": ")
