"""Which arguments and variables of the user the operator refuses since it derives them itself, in every spelling.

One regular expression per table decides, for the API server (CEL `matches`, RE2) and for Python alike, so the two
cannot disagree. Read in vLLM 0.32's `FlexibleArgumentParser` and in argparse: underscores may stand for dashes, a
value may follow `=`, a JSON value may be given as dotted keys, and any unambiguous beginning of a name is taken for
it. Every beginning of a reserved name is refused here: one that is ambiguous would end the engine at start anyway.
Case counts (case B16).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BOUNDARY = "([=. \\t\\n\\r]|$)"
"""What ends a name. The newlines make `$` mean the end of the text alone in Python too."""


@dataclass(frozen=True, slots=True)
class ReservedFlag:
    """One flag that the operator derives, or that would take the pod out of its hands."""

    name: str
    """`--long-name` or a short `-tp`."""
    reason: str
    remedy: str
    """The spec field that sets it, or what to do instead; a whole sentence."""
    aliases: tuple[str, ...] = ()
    negatable: bool = False
    """`--no-long-name` exists."""

    def spellings(self) -> tuple[str, ...]:
        """All names of the flag, canonical (dashes)."""
        negated = (f"--no-{self.name[2:]}",) if self.negatable else ()
        return (self.name, *self.aliases, *negated)


@dataclass(frozen=True, slots=True)
class ReservedVariable:
    """One environment variable, or all that begin with `name` when `prefix` is set, except some."""

    name: str
    reason: str
    remedy: str
    prefix: bool = False
    allowed: tuple[str, ...] = ()
    """Variables below a prefix that stay the user's."""
    value_pattern: str = ""
    """When set, only values that it matches (anywhere, RE2) are refused."""


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The reserved flags of one program, and allowed flags that look like the beginning of a reserved one."""

    program: str
    flags: tuple[ReservedFlag, ...]
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One refused item of a list: its index, the canonical name of what it is, and a message for people."""

    index: int
    flag: str
    message: str


FIRST_ITEM_PATTERN = "^-"
"""The first argument must be a flag: a bare word there would be a second model name."""


@functools.lru_cache(maxsize=16)
def reserved_pattern(table: FlagTable) -> str:
    """RE2 and Python regular expression that matches exactly the refused arguments; evaluate it for every item.

    Use it unanchored at the end and as it is (`item.matches(p)` in CEL, `re.search(p, item)` in Python).
    """
    names = [name for flag in table.flags for name in flag.spellings()]
    return _names_pattern(names, table.allowed)


def check_extra_args(args: Sequence[str], table: FlagTable) -> list[Problem]:
    """Find the arguments that the operator refuses, with the reason and the remedy."""
    pattern = re.compile(reserved_pattern(table))
    problems = []
    for index, item in enumerate(args):
        if pattern.search(item):
            problems.append(Problem(index, *_explain(item, table)))
        elif index == 0 and not re.search(FIRST_ITEM_PATTERN, item):
            message = f"{item!r} is not a flag: the model comes from spec.model.name. Remove it."
            problems.append(Problem(index, "model", message))
    return problems


@functools.lru_cache(maxsize=16)
def reserved_env_pattern(table: tuple[ReservedVariable, ...]) -> str:
    """RE2 and Python regular expression that matches exactly the refused variable names (rules on values left out)."""
    parts = []
    for variable in table:
        if variable.value_pattern:
            continue
        if not variable.prefix:
            parts.append(re.escape(variable.name) + "$")
            continue
        tails = [name.removeprefix(variable.name) for name in variable.allowed]
        parts.append(re.escape(variable.name) + _anything_but(tails))
    return f"^({'|'.join(parts)})"


def check_env(variables: Iterable[tuple[str, str | None]], table: tuple[ReservedVariable, ...]) -> list[Problem]:
    """Find the variables (name, value; None when it comes from a reference) that the operator refuses."""
    pattern = re.compile(reserved_env_pattern(table))
    problems = []
    for index, (name, value) in enumerate(variables):
        for rule in table:
            if rule.value_pattern:
                refused = name == rule.name and value is not None and re.search(rule.value_pattern, value) is not None
            else:
                refused = (name.startswith(rule.name) if rule.prefix else name == rule.name) and bool(
                    pattern.search(name)
                )
            if refused:
                problems.append(Problem(index, rule.name, f"{name} is refused: {rule.reason}. {rule.remedy}"))
                break
    return problems


def _explain(item: str, table: FlagTable) -> tuple[str, str]:
    written = re.split(r"[=. \t\n\r]", item, maxsplit=1)[0]
    canonical = written.replace("_", "-")
    exact = [flag for flag in table.flags if canonical in flag.spellings()]
    if not exact:
        exact = [flag for flag in table.flags if re.search(_names_pattern(flag.spellings(), table.allowed), item)]
    if len(exact) == 1:
        flag = exact[0]
        return flag.name, f"{written} is refused: {flag.reason}. {flag.remedy}"
    names = ", ".join(sorted(flag.name for flag in exact)[:4])
    if canonical == "--":
        return "--", "-- is refused: what follows it would be taken for model names. Remove it."
    return canonical, f"{written} is refused: it may stand for {names} and others. Write the flag you mean in full."


def _names_pattern(names: Iterable[str], allowed: Sequence[str]) -> str:
    long: dict[str, Any] = {}
    short: dict[str, Any] = {}
    joined = set()
    for name in names:
        if name.startswith("--"):
            _insert(long, name[2:])
        elif len(name) == 2:
            joined.add(name[1])  # `-n2` is `-n 2`: a one-letter option takes what follows it
        else:
            _insert(short, name[1:])
    allowed_long = frozenset(name[2:] for name in allowed if name.startswith("--"))
    allowed_short = frozenset(name[1:] for name in allowed if not name.startswith("--"))
    parts = []
    if long:
        parts.append("--" + _beginnings(long, "", allowed_long) + _BOUNDARY)
    if short:
        letters = "|".join(_branch(letter, short[letter], letter, allowed_short) for letter in sorted(short))
        parts.append(f"-({letters}){_BOUNDARY}")
    if joined:
        parts.append(f"-[{''.join(sorted(joined))}]")
    return f"^({'|'.join(parts)})"


def _insert(trie: dict[str, Any], word: str) -> None:
    for letter in word:
        trie = trie.setdefault(letter, {})


def _beginnings(trie: Mapping[str, Any], walked: str, allowed: frozenset[str]) -> str:
    """Match every beginning of the words below `trie`, the empty one too, except the allowed ones."""
    if not trie:
        return ""
    branches = "|".join(_branch(letter, trie[letter], walked + letter, allowed) for letter in sorted(trie))
    return f"({branches})" if walked in allowed else f"({branches})?"


def _branch(letter: str, trie: Mapping[str, Any], walked: str, allowed: frozenset[str]) -> str:
    return ("[-_]" if letter == "-" else re.escape(letter)) + _beginnings(trie, walked, allowed)


def _anything_but(words: Sequence[str]) -> str:
    """Match the rest of a text unless it is one of `words`; RE2 has no look-ahead, so the letters are spelled out."""
    if not words:
        return ""
    trie: dict[str, Any] = {}
    for word in words:
        node = trie
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _complement(trie)


def _complement(trie: Mapping[str, Any]) -> str:
    letters = sorted(letter for letter in trie if letter)
    parts = [] if "" in trie else ["$"]
    parts.append(f"[^{''.join(re.escape(letter) for letter in letters)}]" if letters else "[^$]|[$]")
    parts += [re.escape(letter) + _complement(trie[letter]) for letter in letters]
    return f"({'|'.join(parts)})"
