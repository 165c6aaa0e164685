"""Judging a resource as the API server does: same verdict, clearer words. Used by `qcs validate` and by the operator.

What an API server does before it validates happens here too: null means absent. Then come the models (types,
enumerations, bounds, unknown fields), unique keys of lists, and the rules.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from qwen_cached_serve.api.base import LABEL_KEY, LABEL_VALUE, SUBDOMAIN
from qwen_cached_serve.api.explain import problem_of
from qwen_cached_serve.api.problem import Problem
from qwen_cached_serve.api.rules import RULES, select
from qwen_cached_serve.api.schema import Schema, resource_schema
from qwen_cached_serve.api.v1alpha1 import API_VERSION, KIND, QwenCachedServe

_VALUE_ERRORS = frozenset(
    {"string_pattern_mismatch", "greater_than_equal", "less_than_equal", "string_too_short", "too_short"}
)
_METADATA_FIELDS = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


class InvalidResource(ValueError):  # noqa: N818 (a state of the resource, not a failure of ours)
    """A resource that the API server would refuse; `problems` says what and where."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def parse(document: Any) -> QwenCachedServe:
    """Return the resource of a parsed YAML or JSON document; its status is not looked at.

    Raises:
        InvalidResource: the API server would refuse it.

    """
    data = normalise(document)
    problems = tuple(dict.fromkeys(_find_problems(data)))
    if problems:
        raise InvalidResource(problems)
    return _validate(data)


def find_problems(document: Any) -> tuple[Problem, ...]:
    """Return why the API server would refuse the resource; empty when it would not."""
    return tuple(dict.fromkeys(_find_problems(normalise(document))))


def normalise(node: Any) -> Any:
    """Return JSON data as the API server sees it: without nulls in objects."""
    if isinstance(node, Mapping):
        return {str(key): normalise(value) for key, value in node.items() if value is not None}
    if isinstance(node, list | tuple):
        return [normalise(item) for item in node]
    return node


def _find_problems(data: Any) -> Iterator[Problem]:
    shape, values = _structural_problems(data)
    yield from (*shape, *values)
    if shape:
        return  # rules rely on the shape; the API server stops here as well
    yield from _duplicates(data)
    for rule in RULES:
        for scope in rule.scopes:
            for place in select(data, scope):
                if not rule.holds(place.node):
                    problem, remedy = rule.explanation(place.node)
                    yield Problem(place.path + rule.field, problem, remedy)


def _validate(data: Mapping[str, Any]) -> QwenCachedServe:
    text = json.dumps({key: value for key, value in data.items() if key != "status"}, default=str)
    return QwenCachedServe.model_validate_json(text, by_alias=True, by_name=False)


def _structural_problems(data: Any) -> tuple[list[Problem], list[Problem]]:
    """Return the problems of shape (type, presence, length), and those of single values in a right shape."""
    shape = list(_envelope_problems(data))
    if shape:
        return shape, []
    values = list(_metadata_problems(data.get("metadata")))
    try:
        _validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            (values if detail["type"] in _VALUE_ERRORS else shape).append(problem_of(detail))
    return shape, values


def _envelope_problems(data: Any) -> Iterator[Problem]:
    if not isinstance(data, dict):
        yield Problem("", "this is not a resource", "write one object with apiVersion, kind, metadata and spec")
    elif (data.get("apiVersion"), data.get("kind")) != (API_VERSION, KIND):
        yield Problem(
            "apiVersion" if data.get("apiVersion") != API_VERSION else "kind",
            f"this is {data.get('apiVersion')} {data.get('kind')}, not a {KIND}",
            f"write apiVersion: {API_VERSION} and kind: {KIND}",
        )


def _metadata_problems(metadata: Any) -> Iterator[Problem]:
    if not isinstance(metadata, dict) or "uid" in metadata:
        return  # with a uid it comes from an API server, which has judged it already
    for field in sorted(set(metadata) - _METADATA_FIELDS):
        yield Problem(f"metadata.{field}", f"there is no field {field}", "remove it")
    for kind in ("labels", "annotations"):
        yield from _entry_problems(f"metadata.{kind}", metadata.get(kind), labels=kind == "labels")
    name = metadata.get("name", metadata.get("generateName"))
    if not isinstance(name, str) or not name:
        yield Problem("metadata.name", "a name is required", "add metadata.name")
    elif len(name) > 253 or not re.fullmatch(SUBDOMAIN, name.rstrip("-.") if "name" not in metadata else name):
        yield Problem(
            "metadata.name",
            f"{name!r} is not the name of an object",
            "use at most 253 lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit",
        )


def _entry_problems(path: str, entries: Any, *, labels: bool) -> Iterator[Problem]:
    if not isinstance(entries, dict):
        return
    for key, value in entries.items():
        if not re.fullmatch(LABEL_KEY, key if labels else key.lower()):
            yield Problem(
                path, f"{key!r} is not a qualified name", "write an optional DNS domain and a slash, then a name"
            )
        if labels and isinstance(value, str) and not re.fullmatch(LABEL_VALUE, value):
            yield Problem(
                path, f"{value!r} is not a label value", "use at most 63 letters, digits, dots, dashes, underscores"
            )


def _duplicates(data: Mapping[str, Any]) -> Iterator[Problem]:
    for scope, keys in _keyed_lists():
        for place in select(data, scope):
            seen = set()
            for index, item in enumerate(place.node):
                key = tuple(item.get(name) for name in keys)
                if key in seen:
                    what = ", ".join(f"{name} {value!r}" for name, value in zip(keys, key, strict=True))
                    yield Problem(f"{place.path}[{index}]", f"{what} is there twice", "remove one of the two")
                seen.add(key)


@functools.cache
def _keyed_lists() -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(_walk("spec", resource_schema()["properties"]["spec"]))


def _walk(path: str, node: Schema) -> Iterator[tuple[str, tuple[str, ...]]]:
    if "x-kubernetes-list-map-keys" in node:
        yield path, tuple(node["x-kubernetes-list-map-keys"])
    for name, child in node.get("properties", {}).items():
        yield from _walk(f"{path}.{name}", child)
    if "items" in node:
        yield from _walk(f"{path}[]", node["items"])
