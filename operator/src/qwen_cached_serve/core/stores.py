"""Which namespaces of a shared store are in use, from what the resources' statuses say of their pods.

Unused here is not unused: another cluster, a resource that is stopped, or a roll back to a former revision can want a
namespace again. So this tells, and nothing deletes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qwen_cached_serve.inpod.namespaces import PREFIX, namespace_of

_NAMESPACE = re.compile(rf"{PREFIX}v\d+-[0-9a-f]{{40}}")


@dataclass(frozen=True, slots=True)
class User:
    """A resource whose pods keep their entries in a namespace."""

    name: str
    """`NAMESPACE/NAME`."""
    pods: int
    """0 where the spec dedicates a store to it and no pod has it now."""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A namespace that exists in a store."""

    name: str
    summary: str = ""
    """What its marker says, on a file system."""
    size_bytes: int | None = None
    changed: float | None = None
    """Newest change of a file, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A namespace and who uses it."""

    found: Found | None
    """None: in use, and not in this store."""
    name: str
    users: tuple[User, ...]

    @property
    def used(self) -> bool:
        """Whether a resource of this cluster names it."""
        return bool(self.users)


def names_in(text: str) -> list[str]:
    """Return the namespaces that a text mentions (a list of buckets, of keys, of directories), each once."""
    return list(dict.fromkeys(_NAMESPACE.findall(text)))


def users(resources: Iterable[Mapping[str, Any]]) -> dict[str, list[User]]:
    """Return who uses which namespace."""
    by_namespace: dict[str, list[User]] = {}
    for resource in resources:
        for namespace, user in _uses(resource):
            by_namespace.setdefault(namespace, []).append(user)
    return by_namespace


def listing(found: Iterable[Found], used: Mapping[str, list[User]]) -> list[Listed]:
    """Put both together: those in use first, then by name."""
    by_name = {one.name: one for one in found}
    rows = [Listed(by_name.get(name), name, tuple(used.get(name, ()))) for name in {**by_name, **used}]
    return sorted(rows, key=lambda row: (not row.used, row.name))


def _uses(resource: Mapping[str, Any]) -> Iterator[tuple[str, User]]:
    metadata = resource.get("metadata") or {}
    name = f"{metadata.get('namespace')}/{metadata.get('name')}"
    reported = set()
    for entry in (resource.get("status") or {}).get("identities") or ():
        reported.add(entry["identity"])
        yield namespace_of(entry["identity"]), User(name, entry.get("pods") or 0, entry.get("summary") or "")
    for tier in ((resource.get("spec") or {}).get("cache") or {}).get("l2") or ():
        for kind in ("s3", "resp"):
            dedicated = (tier.get(kind) or {}).get("dedicatedTo")
            if dedicated and dedicated not in reported:
                reported.add(dedicated)
                yield namespace_of(dedicated), User(name, 0)
