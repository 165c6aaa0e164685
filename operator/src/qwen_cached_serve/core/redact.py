"""Masking of what may be secret in argument vectors before they are shown in a status or printed.

Secrets belong into Secrets, but `spec.unsupported` and extra arguments take anything, so a value is masked when the
flag's or JSON key's name says that it is one. Plain numbers are not: `--long-prefill-token-threshold 0` is no token.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

MASK = "***"
_SECRET_WORDS = frozenset(
    {"token", "password", "passwd", "secret", "apikey", "credential", "credentials", "authorization"}
)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with secret values masked; their number and order stay."""
    shown: list[str] = []
    secret_follows = False
    for argument in arguments:
        if argument.startswith("-"):
            name, equals, value = argument.partition("=")
            secret = _secret(name)
            shown.append(f"{name}={_mask(value, secret)}" if equals else argument)
            secret_follows = secret and not equals
            continue
        shown.append(_mask(argument, secret_follows))
        # A flag like --api-key takes several values; the next flag ends them.
    return shown


def _mask(value: str, secret: bool) -> str:
    if secret and not re.fullmatch(r"[\d.]*", value):
        return MASK
    if value[:1] in "{[":
        try:
            data = json.loads(value)
        except ValueError:
            return value
        masked = _mask_json(data)
        return value if masked == data else json.dumps(masked, separators=(",", ":"))
    return value


def _mask_json(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: MASK if _secret(key) and isinstance(value, str) else _mask_json(value) for key, value in node.items()
        }
    return [_mask_json(item) for item in node] if isinstance(node, list) else node


def _secret(name: str) -> bool:
    words = [word for word in re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1-\2", name).lower()) if word]
    pairs = itertools.pairwise(words)
    return any(word in _SECRET_WORDS for word in words) or any(
        pair in (("api", "key"), ("access", "key"), ("private", "key")) for pair in pairs
    )
