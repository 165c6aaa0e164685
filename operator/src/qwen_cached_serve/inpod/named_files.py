"""Files and folders that an argument names: what lies there counts for the identity (DESIGN D7).

A draft model, an adapter, a table; or weights of a loader that is told where they are
(`--model-loader-extra-config {"tensorizer_uri": "/w/model-rank-%03d.tensors"}`).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .fingerprint import content_hash

_PATHS = re.compile(r"""(?:^|[=:,"'\[ ])(/[^\s"',\]}]+)""")
_PLACEHOLDER = re.compile(r"%[-0-9.]*[a-zA-Z]|\{.*")
"""What a loader puts a rank's number in for: `%03d`, and from `{rank}` on, where the search for paths ends."""


def paths_in(value: str) -> list[str]:
    """Absolute paths that a value names, alone, behind a name (`sql=/adapters/sql`) or within JSON."""
    return _PATHS.findall(value)


def with_content(value: str) -> str:
    """A value that names files or folders, with the hashes of what lies there; any other as it is.

    Raises:
        Refusal: it cannot be read, as `fingerprint` says it.

    """
    hashes = [content_hash(file) for path in paths_in(value) for file in _found(path)]
    return f"{value} ({', '.join(hashes)})" if hashes else value


def _found(path: str) -> Iterator[Path]:
    if os.path.exists(path):  # noqa: PTH110 - never raises
        yield Path(path)
        return
    parts = _PLACEHOLDER.split(path)
    # Nothing is looked for in the root folder: `/{name}` is a route of HTTP or the like.
    if len(parts) > 1 and os.path.dirname(parts[0]).strip("/"):  # noqa: PTH120
        for name in sorted(glob.glob("*".join(map(glob.escape, parts)))):  # noqa: PTH207 - absolute patterns
            if os.path.isfile(name) or os.path.isdir(name):  # noqa: PTH112, PTH113 - never raise
                yield Path(name)
