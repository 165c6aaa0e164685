"""How a manifest is written down for server-side apply.

The API server reads the body as YAML, and so it must not be what Python's JSON writes for a character beyond the Basic
Multilingual Plane: two escapes, halves of a pair that YAML refuses each by itself. Such a character is written as it
is; all others stay escaped, since YAML also refuses some characters (U+007F, U+0080 …) that stand there unescaped.
"""

from __future__ import annotations

import json
import re

from qwen_cached_serve.kube.port import Manifest

_ESCAPE = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\.")
"""A pair, or any other escape, so that what follows an escaped backslash is not taken for one."""


def apply_body(manifest: Manifest) -> str:
    """Return the manifest as text that is JSON and YAML alike."""
    return _ESCAPE.sub(_joined, json.dumps(manifest, separators=(",", ":")))


def _joined(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]
    return chr(0x10000 + ((int(found[1], 16) - 0xD800) << 10) + int(found[2], 16) - 0xDC00)
