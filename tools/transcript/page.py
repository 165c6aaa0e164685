"""The page: chapters, words, and commands with what they printed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, field

_WIDTH = 140


class UnfitError(Exception):
    """The page holds what is of this machine and does not belong into a document."""


@dataclass(slots=True)
class Page:
    """Markdown in the making."""

    title: str
    _parts: list[str] = field(default_factory=list)
    _console: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        self._close()
        self._parts.append(f"## {title}")

    def say(self, words: str) -> None:
        """Add a paragraph."""
        self._close()
        self._parts.append(textwrap.fill(" ".join(words.split()), _WIDTH, break_on_hyphens=False))

    def note(self, words: str) -> None:
        """Add a paragraph that is about the playing, not about what is played."""
        self.say(words)
        self._parts[-1] = textwrap.indent(self._parts[-1], "> ")

    def command(self, line: str, printed: str) -> None:
        """Add a command as it was typed and what it printed; commands in a row share a block."""
        shown = [row.rstrip() for row in printed.rstrip().splitlines()]
        self._console.append("\n".join([f"$ {line}", *shown]))

    def text(self, machine: Collection[str] = ()) -> str:
        """Return the page.

        Raises:
            UnfitError: one of `machine` (folders, names of hosts) is in it.

        """
        self._close()
        text = f"# {self.title}\n\n" + "\n\n".join(self._parts) + "\n"
        if found := [word for word in machine if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]:
            raise UnfitError(f"the transcript would hold {', '.join(found)}")
        return text

    def _close(self) -> None:
        if self._console:
            self._parts.append("```console\n" + "\n\n".join(self._console) + "\n```")
            self._console.clear()
