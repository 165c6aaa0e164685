"""What an exception or an engine's words mean: final refusals, and what only says that asking this way did not work."""

from __future__ import annotations

import pytest

from qwen_cached_serve.inpod.classify import classify, classify_words
from qwen_cached_serve.inpod.dry_start import explain_end
from qwen_cached_serve.inpod.probe import FALLS_THROUGH
from qwen_cached_serve.inpod.vllm_api import NotUnderstood


class LocalEntryNotFoundError(OSError):
    """As the hub's client names it."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), "OutOfMemory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "OutOfMemory"),
        (RuntimeError("Failed to infer device type, please set ..."), "DeviceMissing"),
        (RuntimeError("Device string must not be empty"), "DeviceMissing"),
        (ImportError("libcuda.so.1: cannot open shared object file"), "DeviceMissing"),
        (RuntimeError("No CUDA GPUs are available"), "DeviceMissing"),
        (OSError("You are trying to access a gated repo."), "ModelAccessDenied"),
        (OSError("Can't load the configuration of 'x'; it has no config.json"), "CheckpointMissing"),
        (OSError("We couldn't connect to the hub to load the files"), "ModelNotAvailableOffline"),
        (LocalEntryNotFoundError("no entry"), "ModelNotAvailableOffline"),
        (ValueError("Model architectures ['X'] are not supported for now."), "ArchitectureNotSupported"),
    ],
)
def test_what_is_known_of_the_pod_is_final(error: BaseException, code: str) -> None:
    found = classify(error)
    assert found.code == code
    assert found.code not in FALLS_THROUGH
    assert found.hint


@pytest.mark.parametrize(
    "error",
    [
        ImportError("this vLLM has no initialize_model in vllm.model_executor.model_loader.utils"),
        ImportError("libc10_cuda.so: undefined symbol: _ZN3c104cuda"),
        AttributeError("'CacheConfig' object has no attribute 'block_size'"),
        # Words that would mean something in another exception mean nothing in these.
        AttributeError("module 'vllm' has no attribute 'architecture'"),
        TypeError("update() got an unexpected keyword argument 'offline'"),
        NotImplementedError("Cannot copy out of meta tensor; no data!"),
        NotUnderstood("with a block size of 16 an attention page has 65536 bytes"),
        KeyError("surprise"),
        AssertionError(),
    ],
)
def test_another_api_and_what_nothing_explains_go_on_to_the_dry_start(error: BaseException) -> None:
    found = classify(error)
    assert found.code in FALLS_THROUGH
    assert type(error).__name__ in found.message


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("vllm serve: error: argument --mamba-cache-mode: invalid choice: 'all'", "BadEngineArgs"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "OutOfMemory"),
        ("RuntimeError: Failed to infer device type, please set", "DeviceMissing"),
        ("ValueError: No common block size for 2096 (FLASHINFER: [16, 32, 64])", "BlockSizeNotFound"),
        ("OSError: /model/x is not a local folder and is not a valid model identifier", "CheckpointMissing"),
    ],
)
def test_an_engines_last_words(words: str, code: str) -> None:
    named = classify_words(words)
    assert named is not None
    assert named.code == code
    assert explain_end(f"INFO starting\n(EngineCore pid=7) ERROR {words}\nINFO bye\n").code == code


@pytest.mark.parametrize("log", ["", "INFO nothing\n", "RuntimeError: Engine core initialization failed.\n"])
def test_an_end_that_nothing_explains_quotes_the_last_words(log: str) -> None:
    end = explain_end(log)
    assert end.code == "DryStartFailed"
    assert (log.strip() or "it said nothing") in end.message
