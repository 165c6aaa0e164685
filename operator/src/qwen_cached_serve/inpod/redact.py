"""Masking of what may be secret in argument vectors before they are shown in a status, printed or served.

Secrets belong into Secrets, but `spec.unsupported` and extra arguments take anything. Masked are: the value of a flag
or JSON key whose name says that it is one, whatever type it has, and user names and passwords in URLs anywhere.
Rather one value too many than one too few.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

MASK = "***"
_SECRET_PARTS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "authorization",
    "bearer",
    "apikey",
    "accesskey",
    "privatekey",
    "apitoken",
    "authtoken",
    "accesstoken",
)
"""Anywhere in a name, whatever separates its words."""
_SECRET_WORD = "token"  # noqa: S105 - a word to look for
"""Only as a word of its own: not --tokenizer, not --max-num-batched-tokens."""
_MEASURES = frozenset({"threshold", "id", "ids", "index"})
"""After `token` they make a figure of it: --long-prefill-token-threshold 512, "image_token_id": 5. Numbers only."""
_NUMBER = re.compile(r"-?[\d.]+")
_FLAG = re.compile(r"-[^\s={\[]+(=.*)?", re.DOTALL)
_USER_IN_URL = re.compile(r"//(?:[^\s/?#@:]*:\S*|[^\s/?#@]+)@")
"""Up to the last @: a password may hold an @ or / that nobody has escaped."""


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with secret values masked; their number and order stay."""
    shown: list[str] = []
    flag = ""
    for argument in arguments:
        # As argparse reads it: -5 and "-a b" are values.
        if _FLAG.fullmatch(argument) and not _NUMBER.fullmatch(argument):
            name, equals, value = argument.partition("=")
            shown.append(f"{name}={_mask(name, value)}" if equals else _mask_urls(argument))
            flag = name
            continue
        shown.append(_mask(flag, argument))
        # A flag like --api-key takes several values; the next flag ends them.
    return shown


def _mask(name: str, value: str) -> str:
    if _secret(name) and value:
        return value if _measure(name) and _NUMBER.fullmatch(value) else MASK
    if "{" in value or "[" in value:
        try:
            data = json.loads(value, object_pairs_hook=_object)
            masked = _mask_json(data)
        except (ValueError, RecursionError):
            # Nearly JSON, as in -O{"level":3}, or too deep to look into.
            return MASK if _secret(value) else _mask_urls(value)
        return value if masked == data else json.dumps(masked, separators=(",", ":"))
    return _mask_urls(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice: what the first holds would be looked over")
    return found


def _mask_urls(text: str) -> str:
    return _USER_IN_URL.sub(f"//{MASK}@", text)


def _mask_json(node: Any) -> Any:
    if isinstance(node, dict):
        return {_mask_urls(key): _mask_entry(key, value) for key, value in node.items()}
    if isinstance(node, list):
        return [_mask_json(item) for item in node]
    return _mask("", node) if isinstance(node, str) else node


def _mask_entry(key: str, value: Any) -> Any:
    if not _secret(key):
        return _mask_json(value)
    if value is None or isinstance(value, bool) or (_measure(key) and _all_numbers(value)):
        return value
    return MASK


def _all_numbers(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, int | float) for item in items)


def _words(name: str) -> list[str]:
    split = re.sub(r"([a-z])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\2-", name).lower()
    return [word for word in re.split(r"[^a-z0-9]+", split) if word]


def _secret(name: str) -> bool:
    words = _words(name)
    whole = "".join(words)
    return _SECRET_WORD in words or any(part in whole for part in _SECRET_PARTS)


def _measure(name: str) -> bool:
    """Whether the name is secret for nothing but a `token` that is counted or numbered."""
    words = _words(name)
    rest = [
        word
        for index, word in enumerate(words)
        if not (word == _SECRET_WORD and index + 1 < len(words) and words[index + 1] in _MEASURES)
    ]
    return not _secret("-".join(rest))
