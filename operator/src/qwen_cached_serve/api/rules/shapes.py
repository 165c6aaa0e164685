"""Rules that come in families: unions of a type and a block, and values that are not implemented yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.rules.rule import Node, Rule, quote

CONTAINERS = ("spec.engine", "spec.cache")
"""Scopes that have resources, variables and arguments of a container."""


def union(
    scope: str,
    blocks: Mapping[str, str],
    *,
    default: str,
    required: tuple[str, ...],
    examples: Mapping[str, dict[str, Any]],
) -> list[Rule]:
    """Return the rules of a union: a block goes with its type only, and the types of `required` need theirs.

    `blocks` maps a type to the name of its block, `default` is the type that an absent `type` means, and `examples`
    holds for each type a fragment of a spec that chooses it.
    """
    rules: list[Rule] = []
    where = scope.removeprefix("spec.")
    for kind, block in blocks.items():
        chosen = f"(has(self.type) ? self.type : {quote(default)}) == {quote(kind)}"
        others = tuple(other for other in examples if other != kind)
        rules.append(
            Rule(
                name=f"{where}.{block}-needs-type",
                scopes=(scope,),
                cel=f"!has(self.{block}) || {chosen}",
                holds=_block_has_type(kind, block, default),
                field=f".{block}",
                problem=f"{where}.{block} goes with type {kind} only (an absent type means {default})",
                remedy=f"set {where}.type: {kind} or remove {where}.{block}",
                accepts=(examples[kind],),
                rejects=tuple(_with_block(scope, block, examples[kind], examples[other]) for other in others),
            )
        )
        if kind in required:
            rules.append(
                Rule(
                    name=f"{where}.{block}-required",
                    scopes=(scope,),
                    cel=f"!({chosen}) || has(self.{block})",
                    holds=_type_has_block(kind, block, default),
                    field=f".{block}",
                    problem=f"{where}.type {kind} needs the block {where}.{block}",
                    remedy=f"add {where}.{block} or choose another type",
                    accepts=(examples[kind],),
                    rejects=(_without_block(scope, block, examples[kind]),),
                )
            )
    return rules


def not_implemented(scope: str, field: str, value: str, *, instead: str, base: Mapping[str, Any] | None = None) -> Rule:
    """Return the rule that refuses `value` of `field` until the operator can carry it out."""
    where = f"{scope}.{field}".removeprefix("spec.")
    parent = scope.removeprefix("spec").lstrip(".")
    allowed = fragment(parent, dict(base or {}))
    refused = fragment(parent, {**(base or {}), field: value})
    return Rule(
        name=f"{where}-{value}-not-implemented",
        scopes=(scope,),
        cel=f"!has(self.{field}) || self.{field} != {quote(value)}",
        holds=lambda node: node.get(field) != value,
        field=f".{field}",
        problem=f"{where}: {value} is not implemented yet",
        remedy=instead,
        accepts=(allowed,),
        rejects=(refused,),
    )


def fragment(path: str, value: Any) -> dict[str, Any]:
    """Return `value` nested below the dotted `path` of a spec."""
    for step in reversed(path.split(".") if path else []):
        value = {step: value}
    return dict(value)


def for_each_container(fragments: tuple[Node, ...]) -> tuple[dict[str, Node], ...]:
    """Return every fragment once for the engine and once for the cache server."""
    return tuple(fragment(path.removeprefix("spec."), part) for path in CONTAINERS for part in fragments)


def pod(**fields: object) -> dict[str, Node]:
    """Return a fragment of a spec that sets fields of `spec.pod`."""
    return {"pod": fields}


def is_size(node: Node) -> bool:
    """Whether an int-or-string is a size: bytes, more than none."""
    return re.fullmatch(quantity.SIZE_PATTERN.strip("^$"), str(node)) is not None and quantity.parse(node) >= 1


def is_quantity(node: Node) -> bool:
    """Whether an int-or-string is a quantity of Kubernetes that is not negative."""
    return re.fullmatch(quantity.QUANTITY_PATTERN.strip("^$"), str(node)) is not None


def _block_has_type(kind: str, block: str, default: str) -> Any:
    return lambda node: block not in node or node.get("type", default) == kind


def _type_has_block(kind: str, block: str, default: str) -> Any:
    return lambda node: node.get("type", default) != kind or block in node


def _at(scope: str, example: Mapping[str, Any]) -> dict[str, Any]:
    node: Any = example
    for step in scope.removeprefix("spec.").split("."):
        node = node[step]
    return dict(node)


def _with_block(scope: str, block: str, source: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    inner = {**_at(scope, target), block: _at(scope, source).get(block, {})}
    return fragment(scope.removeprefix("spec."), inner)


def _without_block(scope: str, block: str, example: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in _at(scope, example).items() if key != block}
    return fragment(scope.removeprefix("spec."), inner)
