"""torch.cuda as far as constructors of layers ask it, for a GPU that does not exist.

vLLM finds its platform through NVML (a faked library, faked_nvml.c) and needs no patch for that. Some constructors go
further: FlashInfer's asks torch for the number of multiprocessors and allocates a small buffer. Questions are answered
with the generation's data, allocations go to the meta device. No patch touches vLLM's code.
"""

from __future__ import annotations

import functools
import gc
import importlib
from types import SimpleNamespace
from typing import Any


def install() -> None:
    """Send what is allocated on a CUDA device to the meta device from here on, in this process and its forks."""
    torch: Any = importlib.import_module("torch")
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.Stream = _Stream
    _redirect(torch)


def describe(capability: tuple[int, int], name: str, memory_bytes: int, processors: int) -> None:
    """Answer torch's questions about the device."""
    torch: Any = importlib.import_module("torch")
    major, minor = capability
    properties = SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        total_memory=memory_bytes,
        multi_processor_count=processors,
        is_integrated=False,
        is_multi_gpu_board=False,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block_optin=232448,
        regs_per_multiprocessor=65536,
        L2_cache_size=50 << 20,
        gcnArchName="",
        uuid="faked",
    )
    torch.cuda.get_device_properties = lambda device=None: properties
    torch.cuda.get_device_capability = lambda device=None: (major, minor)
    torch.cuda.get_device_name = lambda device=None: name


def forget() -> None:
    """Empty the caches in which vLLM and FlashInfer keep what they learned about a device."""
    for found in gc.get_objects():
        if type(found) is functools._lru_cache_wrapper and str(found.__module__).startswith(("vllm", "flashinfer")):
            found.cache_clear()


class _Stream:
    """A side stream as MoE layers make one when they are built; nothing is ever put on it."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        self.cuda_stream = 0


def _redirect(torch: Any) -> None:
    from torch.overrides import TorchFunctionMode

    class CudaToMeta(TorchFunctionMode):  # type: ignore[misc]
        """Factory functions that name a CUDA device get the meta device instead."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = dict(kwargs or {})
            if _is_cuda(torch, given.get("device")):
                given["device"] = torch.device("meta")
                given.pop("pin_memory", None)
            if func is torch.Tensor.to and len(args) > 1 and _is_cuda(torch, args[1]):
                args = (args[0], torch.device("meta"), *args[2:])
            return func(*args, **given)

    CudaToMeta().__enter__()


def _is_cuda(torch: Any, device: Any) -> bool:
    """A device in any of the ways torch takes one; a number is an ordinal of the default accelerator."""
    if isinstance(device, int) and not isinstance(device, bool):
        return True
    if isinstance(device, str):
        return device.startswith("cuda")
    return isinstance(device, torch.device) and device.type == "cuda"
