"""The data of a ControllerRevision: one JSON document, compressed, since the pod's scripts are most of it.

Written in the same bytes for the same content, so that a repeated creation meets itself.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from qwen_cached_serve.core.records import FORMAT, Content

ENCODING = "gzip+base64"
_LEVEL = 5
"""A third of the time of the strongest level, for one part in a hundred more."""


class UnreadableRevision(ValueError):  # noqa: N818 - a state of the object, not a failure of ours
    """Data that is not what `pack` writes; the message says in what way."""


def pack(content: Content) -> dict[str, Any]:
    """Return the data of a revision."""
    document = {
        "spec": content.spec,
        "configMap": content.config_map,
        "serviceAccount": content.service_account,
        "template": content.template,
        "tuning": content.tuning,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    packed = gzip.compress(text.encode(), compresslevel=_LEVEL, mtime=0)
    return {"format": FORMAT, "encoding": ENCODING, "content": base64.b64encode(packed).decode("ascii")}


def unpack(data: Any, expected_hash: str) -> Content:
    """Read the data of a revision.

    Raises:
        UnreadableRevision: another format, damaged, or not the content that its label names.

    """
    if not isinstance(data, Mapping) or (data.get("format"), data.get("encoding")) != (FORMAT, ENCODING):
        raise UnreadableRevision(f"its data is not format {FORMAT}, {ENCODING}")
    try:
        packed = base64.b64decode(str(data.get("content", "")), validate=True)
        document = json.loads(gzip.decompress(packed))
        content = Content(
            spec=document["spec"],
            config_map=document["configMap"],
            service_account=document["serviceAccount"],
            template=document["template"],
            tuning=document["tuning"],
        )
        found = content.hash
    except (binascii.Error, OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise UnreadableRevision(f"its data is damaged ({type(error).__name__})") from error
    if found != expected_hash:
        raise UnreadableRevision(f"its data has the hash {found}, not the {expected_hash} of its label")
    return content
