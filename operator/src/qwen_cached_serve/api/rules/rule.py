"""What a cross-field rule is: one CEL expression for the API server, one Python twin, one message, examples for both.

A rule sits at a *scope*, a path through the resource in which `[]` means each item of a list and `{}` each value of a
map. Both the expression and the twin see only what is below the scope (`self`). Twins work on plain JSON data, as CEL
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Node = Any
"""JSON data: what `self` is at a rule's scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule, carried by the CustomResourceDefinition as CEL and by `validate` as Python."""

    name: str
    """Unique and stable: tests and documentation refer to it."""
    scopes: tuple[str, ...]
    cel: str
    """True where the rule holds."""
    holds: Callable[[Node], bool]
    """The same in Python."""
    problem: str
    """What is wrong, naming the field."""
    remedy: str
    """What to do about it."""
    field: str = ""
    """Field that the error points at, relative to the scope, as in `.tensorParallelSize`; empty for the scope
    itself."""
    message_cel: str = ""
    """CEL expression for a message that depends on the resource; `message` is used when it fails."""
    explain: Callable[[Node], tuple[str, str]] | None = None
    """The same in Python: what is wrong, and what to do."""
    accepts: tuple[dict[str, Any], ...] = ()
    """Fragments of a spec, merged over a minimal one, for which the rule holds."""
    rejects: tuple[dict[str, Any], ...] = ()
    """Fragments for which it does not."""

    @property
    def message(self) -> str:
        """The whole sentence."""
        return f"{self.problem}; {self.remedy}"

    def explanation(self, node: Node) -> tuple[str, str]:
        """Return what is wrong with this node, and what to do about it."""
        return self.explain(node) if self.explain else (self.problem, self.remedy)

    def validation(self) -> dict[str, str]:
        """Return the entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message}
        if self.message_cel:
            entry["messageExpression"] = self.message_cel
        if self.field:
            entry["fieldPath"] = self.field
        return entry


@dataclass(frozen=True, slots=True)
class Place:
    """A node that a scope selects, and its path for people."""

    path: str
    node: Node


def select(document: Node, scope: str) -> Iterator[Place]:
    """Yield the nodes that `scope` selects in `document`; absent ones are left out."""
    places = [Place("", document)]
    for step in split(scope):
        places = [inner for place in places for inner in _descend(place, step)]
    yield from places


def split(scope: str) -> list[str]:
    """Return the steps of a scope: field names, `[]` and `{}`."""
    return scope.replace("[]", ".[]").replace("{}", ".{}").split(".")


def quote(text: str) -> str:
    """Return `text` as a CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _descend(place: Place, step: str) -> Iterator[Place]:
    node = place.node
    if step == "[]":
        for index, item in enumerate(node):
            yield Place(f"{place.path}[{index}]", item)
    elif step == "{}":
        for key, value in node.items():
            yield Place(f"{place.path}[{key}]", value)
    elif step in node:
        yield Place(f"{place.path}.{step}".lstrip("."), node[step])
