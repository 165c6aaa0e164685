"""pydantic's errors in the words of the resource: camelCase paths, what is allowed, what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from qwen_cached_serve.api.base import INT_OR_STRING
from qwen_cached_serve.api.problem import Problem
from qwen_cached_serve.api.schema import Schema, resource_schema

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_KINDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a fraction",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_EXPECTED = {
    "int_type": "an integer",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def problem_of(error: ErrorDetails) -> Problem:
    """Return the problem that one of pydantic's errors stands for."""
    path, node = _locate(error["loc"])
    kind, given, limits = error["type"], error["input"], error.get("ctx", {})
    field = path.rsplit(".", 1)[-1]
    if INT_OR_STRING in node:
        return Problem(path, f"{_show(given)} is neither an integer nor a short string", "write a number or a quantity")
    if kind == "missing":
        return Problem(path, f"{field} is required", "add it")
    if kind == "extra_forbidden":
        return Problem(path, f"there is no field {field}", _suggest(field, path, error["loc"]))
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
        return Problem(path, f"this has to be {expected}, not {_kind(given)}", _rewrite(kind, given, expected))
    make = _BOUNDS.get(kind)
    if make:
        message, remedy = make(given, limits, node)
        return Problem(path, message, remedy)
    return Problem(path, str(error["msg"]).lower(), "correct it; kubectl explain tells what the field takes")


def _literal(given: Any, _: Mapping[str, Any], node: Schema) -> tuple[str, str]:
    allowed = [str(value) for value in node.get("enum", ())]
    return f"{_show(given)} is not one of its values", f"write one of {', '.join(allowed)}"


def _pattern(given: Any, limits: Mapping[str, Any], _: Schema) -> tuple[str, str]:
    return f"{_show(given)} has characters or a form that is not allowed", f"write what matches {limits['pattern']}"


def _bound(words: str, key: str) -> Callable[[Any, Mapping[str, Any], Schema], tuple[str, str]]:
    def make(given: Any, limits: Mapping[str, Any], _: Schema) -> tuple[str, str]:
        return f"{_show(given)} is out of bounds", f"write {words.format(limits[key])}"

    return make


def _size(words: str, key: str) -> Callable[[Any, Mapping[str, Any], Schema], tuple[str, str]]:
    def make(_: Any, limits: Mapping[str, Any], __: Schema) -> tuple[str, str]:
        count = limits[key]
        return f"this has to have {words.format(count)}".removesuffix("s" if count == 1 else ""), "correct it"

    return make


_BOUNDS: dict[str, Callable[[Any, Mapping[str, Any], Schema], tuple[str, str]]] = {
    "literal_error": _literal,
    "string_pattern_mismatch": _pattern,
    "greater_than_equal": _bound("a number not below {}", "ge"),
    "less_than_equal": _bound("a number not above {}", "le"),
    "string_too_short": _size("at least {} characters", "min_length"),
    "string_too_long": _size("at most {} characters", "max_length"),
    "too_short": _size("at least {} items", "min_length"),
    "too_long": _size("at most {} items", "max_length"),
}


def _locate(location: tuple[int | str, ...]) -> tuple[str, Schema]:
    """Return the path for people and the schema at the place; steps that pydantic adds for unions are dropped."""
    path, node = "", resource_schema()
    for step in location:
        if INT_OR_STRING in node:
            break
        if isinstance(step, int):
            path, node = f"{path}[{step}]", node.get("items", {})
        elif "additionalProperties" in node:
            path, node = f"{path}[{step}]", node["additionalProperties"]
        else:
            path, node = f"{path}.{step}".lstrip("."), node.get("properties", {}).get(step, {})
    return path, node


def _suggest(field: str, path: str, location: tuple[int | str, ...]) -> str:
    allowed = list(_locate(location[:-1])[1].get("properties", {}))
    near = difflib.get_close_matches(field, allowed, n=1)
    if near:
        return f"write {near[0]}"
    elsewhere = _places_of(field, "spec", resource_schema()["properties"]["spec"])
    if elsewhere:
        return f"move it to {elsewhere[0]}"
    return f"remove it; {path.rpartition('.')[0] or 'the resource'} takes {', '.join(allowed)}"


def _places_of(field: str, path: str, node: Schema) -> list[str]:
    found = [f"{path}.{field}"] if field in node.get("properties", {}) else []
    for name, child in node.get("properties", {}).items():
        found += _places_of(field, f"{path}.{name}", child)
    return found


def _rewrite(kind: str, given: Any, expected: str) -> str:
    if kind == "string_type" and isinstance(given, int | float):
        return "put it into quotes"
    if kind == "int_type" and isinstance(given, str) and given.lstrip("-").isdigit():
        return "write it without quotes"
    return f"write {expected}"


def _kind(given: Any) -> str:
    return _KINDS.get(type(given), "something else")


def _show(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."
