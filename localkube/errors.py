"""Errors a user can act on: what happened, and what to do about it."""

from __future__ import annotations


class LocalKubeError(Exception):
    """Something the caller can remedy; ``str()`` is one message that ends with the remedy."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what} {remedy}".strip())


class ComponentDiedError(LocalKubeError):
    """A component ended while it was expected to run; carries its last log lines."""

    def __init__(self, component: str, detail: str, log_lines: list[str]) -> None:
        self.component = component
        self.log_lines = log_lines
        shown = "\n".join(f"  | {line}" for line in log_lines) or "  | (its log is empty)"
        super().__init__(f"{component} {detail}. Its last log lines:\n{shown}")
