"""What a probed N holds for: the settings that the probe was run with."""

from __future__ import annotations

import dataclasses
import json

from qwen_cached_serve.core.inputs import digest
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.inpod.facts import TokensPerStep


def digest_of(resolved: Resolved) -> str:
    """Return a digest of everything that N may depend on; two resources with the same have the same N on one GPU.

    The tokens of a step and the number of sequences follow from N or have no part in it (DESIGN D1, D12).
    """
    settings = resolved.settings
    engine = dataclasses.replace(settings.engine, tokens_per_step=TokensPerStep(), tuned_max_num_seqs=None)
    parts = (
        (settings.model, settings.revision, settings.gpu_count, settings.cache.enabled, resolved.image),
        [_plain(part) for part in (engine, resolved.model, resolved.gpu, *resolved.engine_env, resolved.pod)],
    )
    return digest(json.loads(json.dumps(parts, default=_plain)))


def _plain(part: object) -> object:
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return dataclasses.asdict(part)
    return part if part is None else str(part)
