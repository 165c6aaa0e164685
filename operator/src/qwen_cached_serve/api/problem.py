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
        # The API server tells the path of a rule, which may be above the field, so that its message names the field.
        message = self.message.removeprefix(f"{self.field.removeprefix('spec.')}: ")
        return f"{self.field}: {message}; {self.remedy}".removeprefix(": ")
