"""Masking of what may be secret in free text: log lines and termination messages, before anybody sees them.

Argument vectors have their own rules (`inpod.redact`). Here the text is anything that a program printed, so what looks
like a credential goes: known token shapes, values of names that say so, user names in URLs, signed URLs.
"""

from __future__ import annotations

import re

from qwen_cached_serve.inpod.redact import MASK

_WHOLE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[\w-]{12,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|"
    r"xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
)
_USER_IN_URL = re.compile(r"(?<=//)[^\s/?#@'\"]+@")
_SCHEME = re.compile(r"\b(?P<scheme>Bearer|Basic)(?P<space>\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_NAMED = re.compile(
    r"(?P<name>(?<![\w.-])[\w.-]{0,60}?(?:password|passwd|passphrase|secret|credential|authorization|api[_-]?key|access[_-]?key|"
    r"private[_-]?key|signature|(?<![a-z])token|(?<![a-z])sig)(?!s\b)[\w.-]{0,60})"
    r"(?P<equals>['\"]?\s*[=:]\s*['\"]?)"
    r"(?P<value>(?!None\b|True\b|False\b|null\b|\*\*\*)[^\s'\",;&)\]}]+)",
    re.IGNORECASE,
)
_FLAG = re.compile(
    r"(?P<flag>(?<![\w-])--?[\w-]{0,60}?(?:password|secret|api[_-]key|token)(?![\w-]))(?P<space>\s+)(?P<value>(?!-)[^\s'\"]+)",
    re.IGNORECASE,
)
_PROSE = re.compile(r"authorization|credential", re.IGNORECASE)
"""Words that also stand before a colon in sentences; there only what looks random is masked."""
_RANDOM = re.compile(r"(?=.*\d).{8,}|.{20,}")
_FIGURE = re.compile(r"-?\d{1,9}(?:\.\d+)?")


def redact_text(text: str) -> str:
    """Return the text with what may be secret masked; its lines stay."""
    text = _SCHEME.sub(lambda found: f"{found['scheme']}{found['space']}{MASK}", text)
    text = _USER_IN_URL.sub(f"{MASK}@", text)
    text = _WHOLE.sub(MASK, text)
    text = _FLAG.sub(lambda found: f"{found['flag']}{found['space']}{MASK}", text)
    return _NAMED.sub(_mask_named, text)


def _mask_named(found: re.Match[str]) -> str:
    value = found["value"]
    # A figure is no secret: --long-prefill-token-threshold=512, "image_token_id": 5.
    plain = _FIGURE.fullmatch(value) or (_PROSE.search(found["name"]) and not _RANDOM.fullmatch(value))
    return f"{found['name']}{found['equals']}{value if plain else MASK}"
