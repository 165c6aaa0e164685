"""The immutable ConfigMap with the pod's scripts and settings.

It is named by its content: a change is a new object and rolls the pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.core import names
from qwen_cached_serve.core.children.meta import Meta, meta_of
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.core.volumes import VolumeEntry, code_volume, file_key
from qwen_cached_serve.inpod import bundle, facts


@dataclass(frozen=True, slots=True)
class ConfigMapChild:
    """Scripts and settings of the pod."""

    meta: Meta
    data: Mapping[str, str]


def config_map(resolved: Resolved, scripts: Mapping[str, str]) -> tuple[ConfigMapChild, VolumeEntry]:
    """Compute the ConfigMap and the volume that mounts it; `scripts` maps paths in the pod to texts."""
    files = dict(sorted({**scripts, facts.SETTINGS_FILE: facts.dumps(resolved.settings)}.items()))
    meta = meta_of(resolved, names.config_map_name(resolved.name, bundle.content_hash(files)))
    data = {file_key(path): text for path, text in files.items()}
    return ConfigMapChild(meta, data), code_volume(meta.name, tuple(files))
