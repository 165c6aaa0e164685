"""Name what came out of vLLM, torch or the hub: a coded refusal, or the finding that it cannot be named.

Used for exceptions of the construct method and for the words of an engine that did not survive its dry start.
"""

from __future__ import annotations

import re

from .profiles import Profiles, load_profiles
from .refusal import Refusal

CONSTRUCT_FAILED = "ConstructFailed"
DRY_START_FAILED = "DryStartFailed"

_DRIFT = (AttributeError, TypeError, NameError, ImportError)
"""What another release of vLLM's Python API raises; their words say nothing about the pod."""
_OUT_OF_MEMORY = ("out of memory", "cannot allocate memory", "std::bad_alloc")
_ACCESS = ("gated repo", "401 client error", "403 client error", "access to model")
_DEVICE = (
    "libcuda.so", "device string must not be empty", "failed to infer device type", "no cuda gpus are available",
    "nvml", "cuda driver", "found no nvidia driver", "cuda-capable device",
)  # fmt: skip
_OFFLINE = ("offline", "couldn't connect to", "localentrynotfound")
_MISSING = ("config.json", "no such file", "safetensors", "not a valid model identifier")
_ARGUMENTS = re.compile(r"\bvllm(?: \w+)?: error: |^Value error, ")
"""The parser's refusal, and a validator's as pydantic prints it."""
_BLOCK = ("No common block size", "share no supported", "Aligned KV cache block size")


def classify(error: BaseException) -> Refusal:
    """Name an exception of the construct method.

    ConstructFailed says that nothing is known of the pod, only that this way of asking failed: another way may work.
    """
    words = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return _out_of_memory(words)
    if isinstance(error, ImportError) and any(text in words.lower() for text in _DEVICE):
        return _device_missing(words)
    if isinstance(error, ImportError) and any(text in words.lower() for text in _OUT_OF_MEMORY):
        return _out_of_memory(words)
    if not isinstance(error, _DRIFT):
        # The type's name too: the hub's exceptions carry in it what their words leave out.
        named = classify_words(words, missing=isinstance(error, OSError), also=type(error).__name__)
        if named is not None:
            return named
    return Refusal(
        CONSTRUCT_FAILED,
        f"{type(error).__name__}: {words}",
        "Set spec.blockSizeProbe.method to Auto: the engine is started dry then.",
    )


def classify_words(words: str, *, missing: bool = True, also: str = "") -> Refusal | None:
    """Name the refusal that a program's words mean; None when they are not known.

    `missing`: whether they can be about files at all.
    """
    lower = f"{also} {words}".lower()
    if any(text in lower for text in _OUT_OF_MEMORY):
        return _out_of_memory(words)
    if any(text in lower for text in _ACCESS):
        return Refusal("ModelAccessDenied", words, "Check spec.model.source.huggingFace.tokenSecretKeyRef.")
    if any(text in lower for text in _DEVICE):
        return _device_missing(words)
    if any(text in lower for text in _OFFLINE):
        return Refusal("ModelNotAvailableOffline", words, "Fill spec.model.downloadVolume, or let the pod go online.")
    if missing and any(text in lower for text in _MISSING):
        return Refusal("CheckpointMissing", words, "Check spec.model.name and the files of the model.")
    if "architecture" in lower or any(text in words for text in _BLOCK) or _ARGUMENTS.search(words):
        return refuse_arguments(words, load_profiles())
    return None


def refuse_arguments(words: str, profiles: Profiles) -> Refusal:
    """Name the refusal that vLLM's words about its arguments or its configuration mean."""
    if "are not supported for now" in words or "does not recognize this architecture" in words:
        if any(name in words for name in (*profiles.architectures, "qwen3_5")):
            hint = f"Set spec.engine.image to one with {profiles.advised_pair}."
            return Refusal("ImageTooOld", f"this vLLM does not know the model: {words}", hint)
        return Refusal(
            "ArchitectureNotSupported",
            words,
            "This operator serves Qwen3.5, 3.6 and 3.8; see spec.model.name.",
        )
    if any(text in words for text in _BLOCK):
        return Refusal("BlockSizeNotFound", words, "Leave spec.engine.vllm.attentionBackend and blockSize unset.")
    hint = "Correct the field or the extraArgs it names; the probe hands vLLM the engine's own arguments."
    return Refusal("BadEngineArgs", words, hint)


def check_architecture(architecture: str, profiles: Profiles) -> None:
    """Refuse models of other families.

    Raises:
        Refusal: ArchitectureNotSupported.

    """
    if architecture not in profiles.architectures:
        raise Refusal(
            "ArchitectureNotSupported",
            f"the model's architecture is {architecture or 'not named in its config.json'}",
            f"This operator serves Qwen3.5, 3.6 and 3.8 ({', '.join(profiles.architectures)}); see spec.model.name.",
        )


def _out_of_memory(words: str) -> Refusal:
    return Refusal("OutOfMemory", words, "Raise spec.engine.resources.limits.memory, or free the GPU.")


def _device_missing(words: str) -> Refusal:
    hint = "Check spec.engine.accelerator, the node's driver and its device plugin."
    return Refusal("DeviceMissing", words, hint)


def prefix_caching_disabled(why: str) -> Refusal:
    """The refusal of an engine that keeps nothing which could be cached; `why` as it says it."""
    return Refusal(
        "PrefixCachingDisabled",
        f"vLLM turned prefix caching off for this model ({why}), so nothing can be cached",
        "Remove the argument that turns it off from spec.engine.extraArgs or spec.unsupported.engineArgs, "
        "or set spec.cache.mode to Disabled.",
    )


def page_padded(amount: str) -> Refusal:
    """The refusal of a model whose recurrent page is padded by this amount, on a CPU."""
    return Refusal(
        "PagePadded",
        f"a recurrent page of this model is padded by {amount} to the attention page, and on a CPU LMCache shares "
        "whole pages only",
        "Use a model whose pages are equal (the example resources name one), or set spec.cache.mode to Disabled.",
    )
