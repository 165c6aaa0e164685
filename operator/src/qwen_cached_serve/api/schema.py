"""From pydantic models to the structural schema that an API server takes.

pydantic's JSON schema is close: references are inlined, null is left out (optional means absent), `const` becomes
`enum`, titles go. The markers of `base` become list types, stored defaults and the closing sentences of descriptions.
"""

from __future__ import annotations

import functools
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from qwen_cached_serve.api.base import DEFAULT_KEY, RESTARTS_KEY, Default, Restarts
from qwen_cached_serve.api.rules import RULES
from qwen_cached_serve.api.rules.rule import split
from qwen_cached_serve.api.v1alpha1 import KIND, QwenCachedServe, Spec, Status

Schema = dict[str, Any]

_DROPPED = ("title", "default", "additionalProperties", "propertyNames", "$defs", RESTARTS_KEY, DEFAULT_KEY)
_INT32 = 2**31 - 1

YES = "Changing it restarts the pods."
NO = "Changing it restarts nothing."
MIXED = "Changing it restarts the pods, except for the fields that say otherwise."


class _Generator(GenerateJsonSchema):
    """pydantic's generator without null and without `const`."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Generate the schema of the value: absent is how the resource says nothing, not null."""
        return self.generate_inner(schema["schema"])

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """Generate an enumeration of strings."""
        return {"type": "string", "enum": list(schema["expected"])}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Generate the schema of the value; only the marker `Default` puts a default into the schema."""
        return self.generate_inner(schema["schema"])


def structural_schema(model: type[BaseModel], *, restarts: bool) -> Schema:
    """Return the structural schema of a model.

    `restarts` closes each description with what a change does to the pods.
    """
    raw = model.model_json_schema(schema_generator=_Generator, by_alias=True)
    return _convert(_inline(raw, raw.get("$defs", {})), Restarts(pods=True) if restarts else None)


@functools.cache
def resource_schema() -> Schema:
    """Return the structural schema of the whole resource, without rules. Shared: copy it before changing it."""
    return {
        "type": "object",
        "description": " ".join((QwenCachedServe.__doc__ or "").split()),
        "required": ["metadata", "spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema that this resource is written in."},
            "kind": {"type": "string", "description": f"Kind of the resource, {KIND}."},
            "metadata": {"type": "object"},
            "spec": structural_schema(Spec, restarts=True),
            # Every resource has a status from the start: that of one that nobody has looked at (observed_generation).
            "status": {**structural_schema(Status, restarts=False), "default": {}},
        },
    }


def add_rules(schema: Schema) -> None:
    """Put the CEL of every rule at its scopes; `schema` is that of the whole resource."""
    for rule in RULES:
        for scope in rule.scopes:
            node = schema
            for step in split(scope):
                node = _child(node, step, rule.name)
            node.setdefault("x-kubernetes-validations", []).append(rule.validation())


def _child(node: Schema, step: str, rule: str) -> Schema:
    holder, key = {"[]": (node, "items"), "{}": (node, "additionalProperties")}.get(
        step, (node.get("properties", {}), step)
    )
    if not isinstance(holder.get(key), dict):
        raise KeyError(f"rule {rule}: the schema has no {step!r} at this place")
    return cast("Schema", holder[key])


def _inline(node: Any, definitions: Schema, above: tuple[str, ...] = ()) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions, above) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        if name in above:
            raise ValueError(f"{name} refers to itself, which a structural schema cannot express")
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        return _inline({**definitions[name], **siblings}, definitions, (*above, name))
    return {key: _inline(value, definitions, above) for key, value in node.items() if key != "$defs"}


def _convert(node: Schema, restarts: Restarts | None) -> Schema:
    own: Restarts | None = node.get(RESTARTS_KEY, restarts) if restarts else None
    result = {key: value for key, value in node.items() if key not in _DROPPED}
    default: Default | None = node.get(DEFAULT_KEY)
    if default and default.stored:
        result["default"] = default.value
    if result.get("type") == "integer":
        result["format"] = "int32" if 0 <= result.get("maximum", _INT32 + 1) <= _INT32 else "int64"
    if "properties" in node:
        result["properties"] = {name: _convert(part, own) for name, part in node["properties"].items()}
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _convert(node["additionalProperties"], own)
    if "items" in node:
        result["items"] = _convert(node["items"], own)
        result.setdefault("x-kubernetes-list-type", "atomic")
    if "description" in node:
        result["description"] = _describe(node, default, own)
    return _ordered(result)


def _describe(node: Schema, default: Default | None, restarts: Restarts | None) -> str:
    sentences = [" ".join(node["description"].split())]
    if default:
        sentences.append(f"Default: {default.value}.")
    if restarts:
        verdicts = _verdicts(node, restarts)
        usual = MIXED if len(verdicts) > 1 else YES if verdicts == {True} else NO
        sentences.append(restarts.sentence or usual)
    return " ".join(sentences)


def _verdicts(node: Schema, restarts: Restarts) -> set[bool]:
    own: Restarts = node.get(RESTARTS_KEY, restarts)
    parts = [*node.get("properties", {}).values()]
    parts += [inner for key in ("items", "additionalProperties") if isinstance(inner := node.get(key), dict)]
    return set().union(*(_verdicts(part, own) for part in parts)) if parts else {own.pods}


def _ordered(node: Schema) -> Schema:
    first = ("type", "description", "default", "format")
    return {key: node[key] for key in (*first, *(key for key in node if key not in first)) if key in node}
