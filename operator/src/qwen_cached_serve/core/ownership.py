"""Who said what in a live object: the fields of `metadata.managedFields` (server-side apply's `fieldsV1`).

Used twice: to take what this operator said out of a Deployment that it made before there were revisions, and to name
fields of the pod template that somebody else put there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Fields = Mapping[str, Any]


def fields_of(live: Mapping[str, Any], manager: str) -> Fields:
    """Return the field set that a manager applied, empty when it did not apply anything."""
    for entry in (live.get("metadata") or {}).get("managedFields") or ():
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            found: Fields = entry.get("fieldsV1") or {}
            return found
    return {}


def owned(value: Any, fields: Fields, like: Any = None) -> Any:
    """Return the part of a value that a field set covers.

    What the API merges as a whole (a `fieldRef`) is one field, defaults of the API server included. Where `like`, a
    rendering of the same, states the same there, its spelling is taken.
    """
    inner = {name: sub for name, sub in fields.items() if name != "."}
    if not inner:
        # A leaf, or a container that was stated empty.
        if isinstance(value, Mapping) and isinstance(like, Mapping) and like and like.items() <= value.items():
            return dict(like)
        return value if not fields or not isinstance(value, dict | list) else type(value)()
    if isinstance(value, Mapping):
        return {
            name[2:]: owned(value[name[2:]], sub, like.get(name[2:]) if isinstance(like, Mapping) else None)
            for name, sub in inner.items()
            if name.startswith("f:") and name[2:] in value
        }
    if isinstance(value, list):
        return [part for item in value for part in _item(item, inner, like)]
    return value


def _item(item: Any, fields: Fields, like: Any) -> Iterator[Any]:
    for name, sub in fields.items():
        kind, _, text = name.partition(":")
        if kind == "v" and json.loads(text) == item:
            yield item
        if kind == "k" and isinstance(item, Mapping) and _has(item, json.loads(text)):
            yield owned(item, sub, _find(like, json.loads(text)))


def _find(items: Any, keys: Mapping[str, Any]) -> Any:
    found = items if isinstance(items, list) else []
    return next((item for item in found if isinstance(item, Mapping) and _has(item, keys)), None)


def states(value: Any, fields: Fields) -> bool:
    """Whether a value has every field of a set."""
    for name, sub in fields.items():
        kind, _, text = name.partition(":")
        if kind == "f" and not (isinstance(value, Mapping) and text in value and states(value[text], sub)):
            return False
        if kind == "v" and not (isinstance(value, list) and json.loads(text) in value):
            return False
        if kind == "k":
            item = _find(value, json.loads(text))
            if item is None or not states(item, sub):
                return False
    return True


def _has(item: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    return all(item.get(name, "TCP" if name == "protocol" else None) == value for name, value in keys.items())


def foreign_fields(live: Mapping[str, Any], manager: str, path: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (manager, field) of everything below `path` that only others than `manager` stated; containers that they
    share are not named.
    """
    mine = set(_leaves(below(fields_of(live, manager), path), ".".join(path)))
    found = []
    for entry in (live.get("metadata") or {}).get("managedFields") or ():
        if entry.get("subresource") or (entry.get("manager") == manager and entry.get("operation") == "Apply"):
            continue
        theirs = _leaves(below(entry.get("fieldsV1") or {}, path), ".".join(path))
        found += [(str(entry.get("manager", "")), leaf) for leaf in theirs if leaf not in mine]
    return sorted(set(found))


def below(fields: Fields, path: tuple[str, ...]) -> Fields:
    """Return the part of a field set below a path of fields."""
    for part in path:
        fields = fields.get(f"f:{part}") or {}
    return fields


def _leaves(fields: Fields, path: str) -> Iterator[str]:
    for name, sub in fields.items():
        kind, _, text = name.partition(":")
        if kind == "f":
            where = f"{path}.{text}" if path else text
        elif kind == "k":
            where = f"{path}[{','.join(str(part) for part in json.loads(text).values())}]"
        elif kind == "v":
            where = f"{path}[{json.loads(text)}]"
        else:
            continue
        if any(inner != "." for inner in sub):
            yield from _leaves(sub, where)
        else:
            yield where
