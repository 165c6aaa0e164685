"""Condition Validated: is this combination of settings and releases one that was run end to end?"""

from __future__ import annotations

from qwen_cached_serve.core.conditions import Condition
from qwen_cached_serve.inpod.facts import ServeSettings
from qwen_cached_serve.inpod.profiles import load_profiles, parse_version

_KIND = "Validated"


def combination(settings: ServeSettings, vllm: str | None, lmcache: str) -> Condition:
    """Judge settings with the releases that the probe found; `vllm` is None before a probe.

    Every doubt is in the message; the reason is that of the first, the gravest kind.
    """
    doubts = _doubts_of_settings(settings)
    if vllm is not None:
        doubts += _doubts_of_releases(vllm, lmcache, cached=settings.cache.enabled)
    if doubts:
        return Condition(_KIND, "False", doubts[0][0], " ".join(sentence for _, sentence in doubts))
    if vllm is None:
        return Condition(_KIND, "Unknown", "NoPodProbed", "Which versions the image holds is not known before a probe.")
    profiles = load_profiles()
    cached = settings.cache.enabled
    pair = f"vLLM {vllm}" + (f" with LMCache {lmcache}" if cached else "")
    if parse_version(vllm) == parse_version(profiles.advised_vllm) and (
        not cached or parse_version(lmcache) == parse_version(profiles.advised_lmcache)
    ):
        return Condition(_KIND, "True", "AdvisedPair", f"{pair} is the pair that was run end to end.")
    return Condition(_KIND, "True", "Reviewed", f"{pair} was reviewed; the advised pair is {profiles.advised_pair}.")


def _doubts_of_settings(settings: ServeSettings) -> list[tuple[str, str]]:
    doubts = []
    if settings.engine.unsupported_args or settings.cache.unsupported_args:
        sentence = "spec.unsupported is in use: nobody but you has checked those arguments."
        doubts.append(("UnsupportedArguments", sentence))
    if settings.cache.enabled and not settings.engine.text_only:
        sentence = "Images together with the cache are not validated (spec.model.modalities)."
        doubts.append(("Modalities", sentence))
    if settings.cache.enabled and settings.engine.speculative_method:
        sentence = "Speculative decoding together with the cache has open reports of wrong answers on hybrid models."
        doubts.append(("SpeculativeDecoding", sentence))
    return doubts


def _doubts_of_releases(vllm: str, lmcache: str, *, cached: bool) -> list[tuple[str, str]]:
    profiles = load_profiles()
    doubts = []
    if cached:
        doubts += [
            ("KnownFault", f"vLLM {vllm} with LMCache {lmcache} {rule.effect} ({', '.join(rule.issues)}).")
            for rule in profiles.known_faults(vllm, lmcache)
        ]
    notes = (profiles.for_vllm(vllm).note, profiles.for_lmcache(lmcache).note if cached else "")
    # As it is: "vLLM" begins in lower case at the beginning of a sentence too.
    return doubts + [("NotReviewed", f"{note}.") for note in notes if note]
