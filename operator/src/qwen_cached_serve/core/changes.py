"""What differs between two contents of a revision, in words: said when a newer operator would render the pods
differently, and by `qcs diff`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qwen_cached_serve.core.difference import differences
from qwen_cached_serve.core.records import Content
from qwen_cached_serve.core.volumes import CODE, file_key
from qwen_cached_serve.inpod.facts import SETTINGS_FILE

_SHOWN = 8


def changes(old: Content, new: Content) -> list[str]:
    """Name what `new` changes; empty when the pods would be the same."""
    found = list(_files(old.config_map.get("data") or {}, new.config_map.get("data") or {}))
    found += differences(_without_code(old.template), _without_code(new.template))
    return found


def in_words(found: list[str]) -> str:
    """Join changes into one line, the first few of them."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _files(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    settings = file_key(SETTINGS_FILE)
    scripts = [name for name in names if name != settings]
    if scripts:
        yield f"the pod's scripts ({len(scripts)} of {len({*old, *new} - {settings})} files)"
    if settings in names:
        yield "the pod's settings"


def _without_code(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out the volume of the scripts: it names them and their hash, which is told by `_files`."""
    spec = dict(template.get("spec") or {})
    spec["volumes"] = [volume for volume in spec.get("volumes") or [] if volume.get("name") != CODE]
    return {**template, "spec": spec}
