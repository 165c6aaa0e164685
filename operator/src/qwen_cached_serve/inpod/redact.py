"""Masking of what may be secret in argument vectors before they are shown in a status, printed or served.

Secrets belong into Secrets, but `spec.unsupported` and extra arguments take anything. Masked are: the value of a flag
or JSON key whose name says that it is one, whatever type it has, and user names and passwords in URLs anywhere.
Rather one value too many than one too few.

The compatibility identity must not show secrets either, but a figure or a word that is masked only for its name
(`"token_mixer": "a"`) has to make a difference there: `counted` puts a digest in its place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

MASK = "***"
_DIGEST_CHARACTERS = 12
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
_MEASURES = frozenset({
    "budget", "count", "dim", "id", "ids", "index", "indices", "len", "length", "limit", "max", "min", "num", "number",
    "size", "threshold",
})  # fmt: skip
"""After `token` they make a figure of it: --long-prefill-token-threshold 512, "image_token_id": 5. Numbers only."""
_STILL_SECRET = frozenset({"auth", "data", "file", "hash", "header", "key", "path", "string", "text", "value"})
"""After `token` they leave it one; any other word ("token_mixer") means the model's tokens."""
_NUMBER = re.compile(r"-?[\d.]+")
_FLAG = re.compile(r"-[^\s={\[]+(=.*)?", re.DOTALL)
_USER_IN_URL = re.compile(r"//(?:[^\s/?#@:]*:\S*|[^\s/?#@]+)@")
"""Up to the last @: a password may hold an @ or / that nobody has escaped."""


Hide = Callable[[str, Any], str]
"""What stands in the place of a value, by the name that says it is secret."""


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


def counted(name: str, value: str) -> str:
    """What of a value counts for the compatibility identity: secrets by their presence, all else by its value.

    A value that is masked for nothing but the word `token` in its name is told apart by a digest.
    """
    return _mask(name, value, _hide_but_count)


def digest(text: str) -> str:
    """Enough to see that two values differ, and no more."""
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:_DIGEST_CHARACTERS]}"


def _hide(_name: str, _value: Any) -> str:
    return MASK


def _hide_but_count(name: str, value: Any) -> str:
    if _certain(name) or not (_about_tokens(name) or (not isinstance(value, str) and _all_numbers(value))):
        return MASK
    inner = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    return digest(_mask("", inner, _hide_but_count))


def _mask(name: str, value: str, hide: Hide = _hide) -> str:
    if _secret(name) and value:
        shown = value in ("true", "false") or (_measure(name) and _NUMBER.fullmatch(value))
        return value if shown else hide(name, value)
    if "{" in value or "[" in value:
        try:
            data = json.loads(value, object_pairs_hook=_object)
            masked = _mask_json(data, hide)
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


def _mask_json(node: Any, hide: Hide) -> Any:
    if isinstance(node, dict):
        return {_mask_urls(key): _mask_entry(key, value, hide) for key, value in node.items()}
    if isinstance(node, list):
        return [_mask_json(item, hide) for item in node]
    return _mask("", node, hide) if isinstance(node, str) else node


def _mask_entry(key: str, value: Any, hide: Hide) -> Any:
    if not _secret(key):
        return _mask_json(value, hide)
    if value is None or isinstance(value, bool) or (_measure(key) and _all_numbers(value)):
        return value
    return hide(key, value)


def _all_numbers(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, int | float) for item in items)


def _words(name: str) -> list[str]:
    split = re.sub(r"([a-z])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\2-", name).lower()
    return [word for word in re.split(r"[^a-z0-9]+", split) if word]


def _secret(name: str) -> bool:
    return _SECRET_WORD in _words(name) or _certain(name)


def _certain(name: str) -> bool:
    """Whether more than the word `token` says that it is secret."""
    whole = "".join(_words(name))
    return any(part in whole for part in _SECRET_PARTS)


def _measure(name: str) -> bool:
    """Whether the name is secret for nothing but a `token` that is counted or numbered."""
    return _every_token(name, lambda following: following in _MEASURES)


def _about_tokens(name: str) -> bool:
    """Whether the name speaks of the model's tokens, as far as a name can say."""
    return _every_token(name, lambda following: following not in _STILL_SECRET)


def _every_token(name: str, allowed: Callable[[str], bool]) -> bool:
    words = _words(name)
    pairs = list(zip(words, [*words[1:], ""], strict=True))
    rest = [word for word, following in pairs if word != _SECRET_WORD or not following or not allowed(following)]
    return not _secret("-".join(rest))
