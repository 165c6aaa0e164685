"""What a probed N holds for: the settings that the probe was run with."""

from __future__ import annotations

import dataclasses

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
        (settings.model, settings.revision, settings.gpu_count, engine, settings.cache.enabled),
        (resolved.image, resolved.model, resolved.gpu, resolved.engine_env, resolved.pod),
    )
    return digest(repr(parts))
