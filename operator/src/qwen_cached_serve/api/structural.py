"""Whether a schema is structural, and fit for CEL: what an API server would refuse, found without one.

The rules are those of apiextensions/v1 (structural schemas, list types, defaults) plus two of our own: every list, map
and string that a rule walks is bounded, since the API server estimates the cost of a rule from the bounds, and every
field has a description.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qwen_cached_serve.api.base import INT_OR_STRING

Schema = dict[str, Any]

_TYPES = frozenset({"object", "array", "string", "integer", "boolean"})
_FORBIDDEN = frozenset(
    {
        "$ref", "$defs", "$schema", "$id", "const", "definitions", "dependencies", "deprecated", "discriminator", "id",
        "patternProperties", "prefixItems", "propertyNames", "readOnly", "title", "writeOnly", "xml", "allOf", "anyOf",
        "oneOf", "not", "uniqueItems",
    }
)  # fmt: skip
_VALIDATIONS = frozenset({"rule", "message", "messageExpression", "fieldPath", "reason", "optionalOldSelf"})


def check(schema: Schema, path: str = "") -> list[str]:
    """Return what is wrong with a schema, one sentence each; empty when it is structural."""
    return list(_check(schema, path))


def _check(node: Schema, path: str) -> Iterator[str]:
    for key in sorted(_FORBIDDEN & set(node)):
        yield f"{path}: {key} is not allowed in this schema"
    yield from _check_type(node, path)
    yield from _check_list(node, path)
    yield from _check_default(node, path)
    yield from _check_rules(node, path)
    if not node.get("description") and path and not path.endswith(("[]", "{}", ".metadata")):
        yield f"{path}: a description is missing"
    for name, child in _children(node):
        yield from _check(child, f"{path}{name}")


def _children(node: Schema) -> Iterator[tuple[str, Schema]]:
    for name, child in node.get("properties", {}).items():
        yield f".{name}", child
    if isinstance(node.get("items"), dict):
        yield "[]", node["items"]
    if isinstance(node.get("additionalProperties"), dict):
        yield "{}", node["additionalProperties"]


def _check_type(node: Schema, path: str) -> Iterator[str]:
    if node.get(INT_OR_STRING):
        if "type" in node:
            yield f"{path}: {INT_OR_STRING} excludes type"
        return
    if not isinstance(node.get("type"), str) or node["type"] not in _TYPES:
        yield f"{path}: type is {node.get('type')!r}, not one of {', '.join(sorted(_TYPES))}"
    if node.get("nullable"):
        yield f"{path}: nullable is not used here; absent is how the resource says nothing"
    if "properties" in node and "additionalProperties" in node:
        yield f"{path}: properties exclude additionalProperties"
    if node.get("additionalProperties") in (True, False):
        yield f"{path}: additionalProperties has to be a schema"
    if unknown := sorted(set(node.get("required", ())) - set(node.get("properties", {}))):
        yield f"{path}: required names the unknown {unknown[0]}"
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(node.get(key, False), bool):
            yield f"{path}: {key} has to be a boolean"


def _check_list(node: Schema, path: str) -> Iterator[str]:
    if node.get("type") != "array":
        return
    if not isinstance(node.get("items"), dict):
        yield f"{path}: items has to be a schema"
        return
    kind, keys = node.get("x-kubernetes-list-type"), node.get("x-kubernetes-list-map-keys", [])
    if kind not in {"atomic", "set", "map"}:
        yield f"{path}: x-kubernetes-list-type is {kind!r}"
    if (kind == "map") != bool(keys):
        yield f"{path}: x-kubernetes-list-map-keys go with list type map, which needs them"
    for key in keys:
        required = key in node["items"].get("required", ())
        if not required and "default" not in node["items"].get("properties", {}).get(key, {}):
            yield f"{path}: the key {key} has to be required or to have a default"


def _check_default(node: Schema, path: str) -> Iterator[str]:
    if "default" not in node:
        return
    default, kind = node["default"], node.get("type")
    expected = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}.get(str(kind), object)
    if not isinstance(default, expected) or (kind == "integer" and isinstance(default, bool)):
        yield f"{path}: the default {default!r} is no {kind}"
    if "enum" in node and default not in node["enum"]:
        yield f"{path}: the default {default!r} is not one of the values"
    if kind == "object" and default != {}:
        yield f"{path}: the default of an object has to be {{}}, so that the defaults of its fields apply"


def _check_rules(node: Schema, path: str) -> Iterator[str]:
    rules = node.get("x-kubernetes-validations", [])
    for rule in rules:
        if unknown := sorted(set(rule) - _VALIDATIONS):
            yield f"{path}: a rule has the unknown field {unknown[0]}"
        if not rule.get("rule") or not rule.get("message"):
            yield f"{path}: a rule needs an expression and a message"
        if "\n" in rule.get("message", "") or len(rule.get("message", "")) > 2048:
            yield f"{path}: the message of a rule is one line of at most 2,048 characters"
    if rules:
        yield from _check_bounds(node, path)


def _check_bounds(node: Schema, path: str) -> Iterator[str]:
    kind = node.get("type")
    if kind == "array" and "maxItems" not in node:
        yield f"{path}: below a rule a list needs maxItems"
    if kind == "object" and "additionalProperties" in node and "maxProperties" not in node:
        yield f"{path}: below a rule a map needs maxProperties"
    unbounded = kind == "string" and not {"maxLength", "enum"} & set(node)
    if unbounded or (node.get(INT_OR_STRING) and "maxLength" not in node):
        yield f"{path}: below a rule a string needs maxLength"
    for name, child in _children(node):
        yield from _check_bounds(child, f"{path}{name}")
