"""The two shapes of this package: a class of failures, and a rule that recognises one in a log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

GIB = 1 << 30
_SIZE = re.compile(r"(?P<name>\w+?)(?P<unit>GiB|MiB)")
_UNITS = {"GiB": GIB, "MiB": 1 << 20}


@dataclass(frozen=True, slots=True)
class FailureClass:
    """What one code stands for."""

    code: str
    """CamelCase and stable: it becomes the reason of a condition."""
    area: str
    """Heading in docs/troubleshooting.md."""
    meaning: str
    """A sentence that is true of every case."""
    field: str
    """Path in the resource that is to be changed; empty where no field helps."""
    remedy: str
    """What to do, as one or two sentences."""
    heals: bool = False
    """Whether it can go away by itself: a restart, time, or an object that appears (Secret, volume, GPU)."""


class Tier(IntEnum):
    """How much a match says; a better tier beats an earlier place in the log."""

    CAUSE = 0
    SYMPTOM = 1
    """Comes after a cause in another process as often as alone: a peer that went away, refused arguments in general."""
    WRAPPER = 2
    """Says only that something failed: the cause is elsewhere."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one cause looks in a log."""

    code: str
    pattern: re.Pattern[str]
    message: str = ""
    """Sentence with the pattern's groups in braces; the class's meaning when empty."""
    remedy: str = ""
    """Instead of the class's; groups in braces."""
    field: str | Callable[[re.Match[str]], str] = ""
    """Instead of the class's."""
    tier: Tier = Tier.CAUSE

    def numbers(self, match: re.Match[str]) -> dict[str, int]:
        """Figures in the match, by group name; `xGiB` and `xMiB` are given as `xBytes`."""
        found: dict[str, int] = {}
        for name, text in match.groupdict().items():
            if not text:
                continue
            size = _SIZE.fullmatch(name)
            if size and re.fullmatch(r"\d+(?:\.\d+)?", text):
                found[size["name"] + "Bytes"] = round(float(text) * _UNITS[size["unit"]])
            elif re.fullmatch(r"-?\d+", text):
                found[name] = int(text)
        return found


def rule(
    code: str,
    pattern: str,
    message: str = "",
    *,
    remedy: str = "",
    field: str | Callable[[re.Match[str]], str] = "",
    tier: Tier = Tier.CAUSE,
) -> Rule:
    """Compile a rule; a space in the pattern stands for any white space, since pipelines wrap long lines."""
    spaced = re.sub(r" +(?![*?+{])", r"\\s+", pattern)
    return Rule(code, re.compile(spaced, re.DOTALL | re.MULTILINE), message, remedy, field, tier)
