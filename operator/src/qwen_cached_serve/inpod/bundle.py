"""The files that the operator puts into the pod's ConfigMap, and their hash (DESIGN D4)."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from .facts import SETTINGS_FILE, ServeSettings, dumps

_PACKAGE = "qwen_cached_serve/inpod"
_OPERATOR_ONLY = frozenset({"bundle.py"})

_MAIN = '''\
"""Entry point of the pod's scripts: `python3 {folder} VERB`."""

import sys
import types
from pathlib import Path

sys.dont_write_bytecode = True
# A package of this name in the image would win over this folder: Python prefers it to a folder without __init__.py.
package = types.ModuleType("qwen_cached_serve")
package.__path__ = [str(Path(__file__).resolve().parent / "qwen_cached_serve")]
sys.modules[package.__name__] = package

from qwen_cached_serve.inpod.__main__ import main

sys.exit(main(sys.argv[1:]))
'''


@functools.cache
def _code() -> tuple[tuple[str, str], ...]:
    here = Path(__file__).parent
    files = {"__main__.py": _MAIN.replace("{folder}", "/opt/qcs")}
    for path in sorted(here.iterdir()):
        if path.suffix in (".py", ".json") and path.name not in _OPERATOR_ONLY:
            files[f"{_PACKAGE}/{path.name}"] = path.read_text(encoding="utf-8")
    return tuple(sorted(files.items()))


def files() -> dict[str, str]:
    """Every script and data file by its path below the mount, without `settings.json`."""
    return dict(_code())


def files_for(settings: ServeSettings) -> dict[str, str]:
    """Everything that the pod's folder holds: the scripts and one resource's settings."""
    return {**files(), SETTINGS_FILE: dumps(settings)}


def content_hash(content: Mapping[str, str]) -> str:
    """Hash of a set of files, 16 hexadecimal digits; order does not count."""
    text = json.dumps(dict(content), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
