"""What a plan warns of: settings that work as asked and still do not do what people expect."""

from __future__ import annotations

from qwen_cached_serve.core.blocksize import PredictedBlockSize
from qwen_cached_serve.core.catalogue import CatalogueEntry
from qwen_cached_serve.core.hits import chunk_tokens, never_cached_tokens
from qwen_cached_serve.inpod.facts import ServeSettings
from qwen_cached_serve.inpod.flags import Flag
from qwen_cached_serve.inpod.profiles import load_profiles


def block_warnings(
    settings: ServeSettings, predicted: PredictedBlockSize | None, without_step: PredictedBlockSize | None
) -> list[str]:
    """Warn of what follows from N; `without_step` is the prediction without the user's `blockSize`."""
    if predicted is None or not settings.cache.enabled:
        return []
    warnings = [*_never_cached(settings, predicted)]
    if settings.engine.accelerator == "CPU" and predicted.padding_bytes:
        warnings.append(
            f"without a GPU, LMCache caches only models whose state fills a block exactly; this one is padded by "
            f"{predicted.padding_percent:.2f} %: set spec.cache.mode: Disabled"
        )
    n = predicted.block_size
    if without_step is not None and n > without_step.block_size:
        more = n * 100 / without_step.block_size - 100
        warnings.append(
            f"engine.vllm.blockSize is an alignment step, not the block size: it makes N = {n} instead of "
            f"{without_step.block_size}, so every recurrent state takes {more:.0f} % more memory and hits are coarser"
        )
    if predicted.kernel_block_size != n:
        warnings.append(
            f"{predicted.attention_backend} works in blocks of {predicted.kernel_block_size} tokens inside N = {n}: "
            "entries cannot be shared with engines that use another backend, and LMCache before 0.5.6 stores only a "
            "part of them (LMCache/LMCache#4701)"
        )
    if settings.engine.speculative_method:
        warnings.append(
            "speculative decoding together with LMCache has open reports of wrong output on hybrid models "
            "(LMCache/LMCache#4984, vllm-project/vllm#53912)"
        )
    return warnings


def _never_cached(settings: ServeSettings, predicted: PredictedBlockSize) -> list[str]:
    n, limit = predicted.block_size, settings.engine.max_model_len
    chunk, never = chunk_tokens(settings, n), never_cached_tokens(settings, n)
    if limit is not None and n > limit:
        return [
            (
                f"N = {n} is larger than maxModelLen {limit}: no request ever fills a block, so prefix caching does "
                "nothing, neither in vLLM nor in LMCache (vllm-project/vllm#48401); raise spec.model.maxModelLen"
            )
        ]
    if limit is not None and limit <= never:
        return [
            (
                f"prompts of {never} tokens or fewer are never cached, but maxModelLen is {limit}: no prompt ever is; "
                "raise spec.model.maxModelLen"
            )
        ]
    return [
        (
            f"prompts of {never} tokens or fewer are never cached, longer ones in steps of {chunk} "
            "(LMCache/LMCache#4094, by design)"
        )
    ]


def step_warnings(settings: ServeSettings, predicted: PredictedBlockSize | None, engine: tuple[Flag, ...]) -> list[str]:
    """Warn of what follows from the tokens of a step."""
    by_name = {flag.name: flag for flag in engine}
    if predicted is None or "--max-num-batched-tokens" not in by_name or not settings.cache.enabled:
        return []
    warnings = []
    n, tokens = predicted.block_size, int(by_name["--max-num-batched-tokens"].values[0])
    if tokens == n:
        warnings.append(
            f"a step of exactly N = {n} tokens serialises: one decoding request leaves less than a block, so prefill "
            "waits until nothing is decoded (about 7 times slower when cold); use the policy TwoBlocksMinusOne"
        )
    elif tokens >= 2 * n:
        warnings.append(
            f"a step of {tokens} tokens holds {tokens // n} blocks of N = {n}, and only the last one's state is kept: "
            "prefill is faster, hits are coarser"
        )
    bounded = by_name.get("--max-num-seqs")
    if bounded is not None and settings.engine.max_num_seqs is None:
        warnings.append(f"at most {bounded.value} requests run at once (--max-num-seqs): {bounded.reason}")
    return warnings


def pair_warnings(settings: ServeSettings, vllm: str, lmcache: str) -> list[str]:
    """Warn of releases that were not reviewed and of known faults of the pair."""
    profiles = load_profiles()
    notes = [profiles.for_vllm(vllm).note]
    if settings.cache.enabled:
        notes.append(profiles.for_lmcache(lmcache).note)
        notes += [
            f"vLLM {vllm} with LMCache {lmcache} {rule.effect} ({', '.join(rule.issues)})"
            for rule in profiles.known_faults(vllm, lmcache)
        ]
    return [note for note in notes if note]


def catalogue_warnings(entry: CatalogueEntry | None) -> list[str]:
    """Warn of dimensions that nobody has confirmed."""
    if entry is None or entry.confidence == "Confirmed":
        return []
    return [f"the dimensions of {entry.model} are not confirmed: {entry.note}"]
