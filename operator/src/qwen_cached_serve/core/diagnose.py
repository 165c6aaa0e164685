"""Why an engine or cache server ended, told from the last lines of its log.

The cause usually stands far above the last line, in another process, so wrappers and shutdown noise count only when
nothing else is found (B26). The table of causes is `causes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from qwen_cached_serve.core.causes import CAUSES, WRAPPERS, Rule

_QUIET_LINE = re.compile(r"(?:^|\) )(?:INFO|WARNING|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d ")
_EXCERPT_CHARACTERS = 240


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One classified failure."""

    code: str
    """CamelCase, usable as a condition reason."""
    message: str
    """What happened, in a sentence."""
    hint: str
    """What to do, naming the field of the resource where there is one."""
    needs_a_person: bool = True
    """False for what heals by itself or by an object that appears (Secret, volume, GPU)."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Figures read from the text, such as `blockSize` or `maxNumSeqs`."""
    excerpt: str = ""
    """The line that decided, shortened."""

    @property
    def sentence(self) -> str:
        """Message and hint as one text for a condition."""
        return f"{self.message} {self.hint}".strip()


def diagnose_log(text: str) -> Diagnosis | None:
    """Classify a log tail by the first cause in it; None when nothing is recognised."""
    loud = "\n".join(line for line in text.splitlines() if not _QUIET_LINE.search(line))
    for rules in (CAUSES, WRAPPERS):
        found = [(match.start(), rule, match) for rule in rules if (match := rule.pattern.search(loud))]
        if found:
            _, rule, match = min(found, key=lambda hit: hit[0])
            return _diagnosis(rule, match, loud)
    return None


def _diagnosis(rule: Rule, match: re.Match[str], text: str) -> Diagnosis:
    message = rule.message if isinstance(rule.message, str) else rule.message(match)
    numbers = {
        name: int(value)
        for name, value in zip(rule.numbers, match.groups(), strict=False)
        if name and value and value.isdigit()
    }
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.start())
    line = text[start : end if end >= 0 else len(text)].strip()
    return Diagnosis(rule.code, message, rule.hint, rule.needs_a_person, numbers, line[:_EXCERPT_CHARACTERS])
