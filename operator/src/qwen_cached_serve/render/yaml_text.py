"""YAML in and out without surprises: one quoting filter, one loader.

JSON is not a safe way to quote YAML: `1e-05` becomes a string, characters beyond the BMP come out as surrogate pairs
that no YAML parser takes, U+0085 is changed (facts/kopf-and-libraries.md §5). So the filter emits YAML, every string in
double quotes, and the loader refuses what YAML would swallow: duplicate keys, and dates in the guise of strings.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as _Dumper
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


class DuplicateKeyError(yaml.YAMLError):
    """The same key twice in one mapping; the message has line and column."""


class _QuotingDumper(_Dumper):
    """Puts every string in double quotes and never uses anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_QuotingDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


class StrictLoader(_Loader):
    """Refuses duplicate keys and reads dates as the strings they are to Kubernetes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; DuplicateKeyError when a key is there twice."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                mark = key_node.start_mark
                raise DuplicateKeyError(f"line {mark.line + 1}, column {mark.column + 1}: key {key!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in StrictLoader.yaml_implicit_resolvers.items()
}


_PLAIN_ASCII = re.compile(r"[A-Za-z0-9 ._/:@+*,=()<>$&;%^|~-]*")
_LONGEST_KEY = 128
"""YAML takes a longer key only in another notation (1,024 characters with quotes and escapes)."""


def quote(value: Any) -> str:
    """Write a value as YAML on one line; the template filter `q`."""
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) or len(key) > _LONGEST_KEY for key in value):
            return _dump(_plain(value))
        return "{" + ", ".join(f"{quote(key)}: {quote(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(quote, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"' if _PLAIN_ASCII.fullmatch(value) else _quote_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _dump(value)


@functools.lru_cache(maxsize=128)
def _quote_text(text: str) -> str:
    # Remembered for the pod's scripts, the bulk of every ConfigMap, which are the same for all resources.
    return _dump(text)


def _dump(value: Any) -> str:
    text: str = yaml.dump(
        value, Dumper=_QuotingDumper, default_flow_style=True, allow_unicode=False, width=2**30, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def load_one(text: str) -> Any:
    """Read one YAML document.

    Raises:
        yaml.YAMLError: not YAML, more than one document, or a key twice.

    """
    return yaml.load(text, Loader=StrictLoader)  # noqa: S506 - a safe loader


def load_all(text: str) -> list[Any]:
    """Read all documents of a YAML stream, empty ones left out.

    Raises:
        yaml.YAMLError: not YAML, or a key twice.

    """
    return [document for document in yaml.load_all(text, Loader=StrictLoader) if document is not None]


class _BlockDumper(_Dumper):
    """For people: block style, long texts as literal blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_block_text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_BlockDumper.add_representer(str, _represent_block_text)


def dump_all(documents: Iterable[Mapping[str, Any]]) -> str:
    """Write documents as a YAML stream for people and `kubectl apply -f -`."""
    text: str = yaml.dump_all(
        list(documents), Dumper=_BlockDumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120
    )
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
