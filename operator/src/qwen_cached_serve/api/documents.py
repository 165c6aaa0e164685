"""Reading YAML the way kubectl and the API server do.

They take YAML 1.1 with all its booleans (`y` and `on` too), keep dates as text, write 1.0 as 1, and refuse a key that
is there twice; PyYAML does none of these by itself.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from qwen_cached_serve.api.problem import Problem
from qwen_cached_serve.api.validate import InvalidResource

_BOOLEAN = re.compile(r"^(?:y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$")
_INTEGER = re.compile(r"^[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]+|[1-9][0-9_]*|0)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_TRUE = frozenset({"y", "yes", "true", "on"})


def load(text: str) -> list[Any]:
    """Return the documents of a YAML or JSON text, empty ones left out.

    Raises:
        InvalidResource: it cannot be read; the problem says where.

    """
    try:
        return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidResource((Problem(place, error.problem or "this is not YAML", "correct the file"),)) from error
    except yaml.YAMLError as error:
        raise InvalidResource((Problem("", str(error), "write the file as UTF-8 text"),)) from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the API server's reading of scalars."""


def _bool(_: _Loader, node: yaml.ScalarNode) -> bool:
    return str(node.value).lower() in _TRUE


def _integer(_: _Loader, node: yaml.ScalarNode) -> int:
    text = str(node.value).replace("_", "").lower()
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    octal = digits.startswith("0") and digits.isdigit()
    return sign * int(digits, 8 if octal else 0)


def _float(_: _Loader, node: yaml.ScalarNode) -> float | int:
    text = str(node.value).lower()
    value = float(text.replace(".", "", 1) if text.lstrip("+-") in {".inf", ".nan"} else text)
    return int(value) if value.is_integer() else value


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float):
            raise yaml.constructor.ConstructorError(None, None, "a key has to be text", key_node.start_mark)
        name = str(key).lower() if isinstance(key, bool) else str(key)
        if name in result:
            raise yaml.constructor.ConstructorError(None, None, f"the key {name} is there twice", key_node.start_mark)
        result[name] = loader.construct_object(value_node, deep=True)
    return result


_TAG = "tag:yaml.org,2002:"
_OWN_TAGS = frozenset({f"{_TAG}{kind}" for kind in ("timestamp", "bool", "int", "float")})
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OWN_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}bool", _BOOLEAN, list("yYnNtTfFoO"))
_Loader.add_implicit_resolver(f"{_TAG}int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+.0123456789"))
_Loader.add_constructor(f"{_TAG}bool", _bool)
_Loader.add_constructor(f"{_TAG}int", _integer)
_Loader.add_constructor(f"{_TAG}float", _float)
_Loader.add_constructor(f"{_TAG}map", _mapping)
