"""What differs between two trees of JSON data, a line for each place.

Lists of named entries are compared by name, other lists item by item, so that a line says which item it is. Values of
arguments that may be secret are masked.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qwen_cached_serve.inpod.redact import redact_arguments

_LONGEST = 160
"""Characters of both values together; longer ones are not shown."""


def differences(old: Any, new: Any, path: str = "", *, absent: str = "") -> Iterator[str]:
    """Name each place where `new` differs from `old`.

    `absent` is the word for a value that is not there, where its absence has a meaning (`default`); without one, what
    is on one side only is `added` or `removed` as a whole.
    """
    if old == new:
        return
    mappings = _both(old, new, Mapping, {}) if absent else _both(old, new, Mapping)
    lists = _both(old, new, list | tuple, ()) if absent else _both(old, new, list | tuple)
    if mappings and {*mappings[0], *mappings[1]}:
        before, after = mappings
        for key in sorted({*before, *after}):
            yield from differences(
                before.get(key), after.get(key), f"{path}.{key}" if path else str(key), absent=absent
            )
    elif lists and _named(lists[0]) and _named(lists[1]):
        yield from _by_name(*lists, path, absent)
    elif lists:
        yield from _by_item(*lists, path, absent)
    else:
        yield _line(old, new, path, absent)


def _both(old: Any, new: Any, kind: Any, empty: Any = None) -> tuple[Any, Any] | None:
    """Both sides when they are of a kind; `empty` stands for a side that is not there."""
    sides = tuple(empty if side is None else side for side in (old, new))
    return (sides[0], sides[1]) if all(isinstance(side, kind) for side in sides) else None


def _by_name(old: Sequence[Any], new: Sequence[Any], path: str, absent: str) -> Iterator[str]:
    before, after = ({item["name"]: item for item in items} for items in (old, new))
    for name in dict.fromkeys([*before, *after]):
        if name in before and name in after:
            yield from differences(before[name], after[name], f"{path}[{name}]", absent=absent)
        else:
            yield f"{path}[{name}] ({'added' if name in after else 'removed'})"
    if list(before) != list(after) and set(before) == set(after):
        yield f"{path} (order)"


def _by_item(old: Sequence[Any], new: Sequence[Any], path: str, absent: str) -> Iterator[str]:
    before, after = _shown(old), _shown(new)
    keys = [[json.dumps(item, sort_keys=True, default=str) for item in items] for items in (old, new)]
    for kind, i, j, m, n in difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        paired = min(j - i, n - m)
        for at in range(paired):
            if before[i + at] == after[m + at]:
                yield f"{path}[{m + at}] (changed)"
            yield from differences(before[i + at], after[m + at], f"{path}[{m + at}]", absent=absent)
        yield from (f"{path}[{at}]: {_value(before[at])} (removed)" for at in range(i + paired, j))
        yield from (f"{path}[{at}]: {_value(after[at])} (added)" for at in range(m + paired, n))


def _shown(items: Sequence[Any]) -> Sequence[Any]:
    return redact_arguments(items) if all(isinstance(item, str) for item in items) else items


def _named(items: Sequence[Any]) -> bool:
    names = [item.get("name") for item in items if isinstance(item, Mapping)]
    return len(names) == len(items) == len(set(names)) and None not in names


def _line(old: Any, new: Any, path: str, absent: str) -> str:
    shown = [_value(side) if side is not None else absent for side in (old, new)]
    if all(shown) and len("".join(shown)) <= _LONGEST:
        return f"{path}: {shown[0]} → {shown[1]}"
    return f"{path} ({'added' if old is None else 'removed' if new is None else 'changed'})"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else "{…}"
