"""What may differ between two engines that read each other's cache entries: `neutral.json`, a list with reasons.

Whatever is not on the list counts for the compatibility identity (DESIGN D7), known to us or not: a wrong miss costs a
cold prompt, a wrong hit answers with another model's state. The list is data, so that a name and its reason are
reviewed together.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENGINE = "engine"
CACHE_SERVER = "cache_server"


@dataclass(frozen=True, slots=True)
class ProgramFlags:
    """The flags of one program's reviewed release; names are canonical (`--long-name`, dashes)."""

    read_from: str
    """Release whose parser the names were read from: abbreviations mean what they meant there."""
    aliases: Mapping[str, str]
    repeatable: frozenset[str]
    """Flags that add up when given twice; of any other known flag the last one wins."""
    negatable: frozenset[str]
    """Flags with a `--no-` form."""
    counting: frozenset[str]
    """Known flags that count."""
    neutral: Mapping[str, str]
    """Flags that do not, with the reason."""
    spellings: frozenset[str]
    """Every name that the reviewed release's parser has for its long flags."""

    def known(self, name: str) -> bool:
        """Whether the reviewed release has the flag."""
        return name in self.counting or name in self.neutral

    def expand(self, name: str) -> str:
        """The long name of an alias or of an unambiguous beginning; any other name as it is."""
        if name in self.aliases:
            return self.aliases[name]
        if not name.startswith("--") or name in self.spellings:
            return name
        begun = [spelling for spelling in self.spellings if spelling.startswith(name)]
        return self.aliases.get(begun[0], begun[0]) if len(begun) == 1 else name


@dataclass(frozen=True, slots=True)
class Neutral:
    """The whole list."""

    programs: Mapping[str, ProgramFlags]
    environment: Mapping[str, str]
    prefixes: Mapping[str, str]
    """Beginnings of variables' names."""
    checkpoint_files: Mapping[str, str]
    """Files of a checkpoint's folder that are not part of what the engine computes."""
    checkpoint_suffixes: Mapping[str, str]
    """Endings of such files."""

    def variable(self, name: str) -> str | None:
        """Why an environment variable does not count; None when it does."""
        exact = self.environment.get(name)
        if exact is not None:
            return exact
        return next((reason for prefix, reason in self.prefixes.items() if name.startswith(prefix)), None)


@functools.cache
def load_neutral() -> Neutral:
    """Read the list; it lies beside this module, in the package and in the pod."""
    data = json.loads((Path(__file__).parent / "neutral.json").read_text(encoding="utf-8"))
    return Neutral(
        programs={name: _program(data[name]) for name in (ENGINE, CACHE_SERVER)},
        environment=data["environment"]["neutral"],
        prefixes=data["environment"]["prefixes"],
        checkpoint_files=data["checkpoint_files"]["neutral"],
        checkpoint_suffixes=data["checkpoint_files"]["suffixes"],
    )


def _program(data: dict[str, Any]) -> ProgramFlags:
    aliases = [alias for alias in data["aliases"] if alias.startswith("--")]
    negated = [f"--no-{name[2:]}" for name in data["negatable"]]
    return ProgramFlags(
        read_from=data["read_from"],
        aliases=data["aliases"],
        repeatable=frozenset(data["repeatable"]),
        negatable=frozenset(data["negatable"]),
        counting=frozenset(data["counting"]),
        neutral=data["neutral"],
        spellings=frozenset([*data["counting"], *data["neutral"], *aliases, *negated]),
    )
