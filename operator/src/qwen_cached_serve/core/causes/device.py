"""CUDA, the driver, NCCL, and a processor that lacks instructions."""

from __future__ import annotations

from .rule import FailureClass, Tier, rule

_AREA = "Device"
_ACCELERATOR = "spec.engine.accelerator"

CLASSES = (
    FailureClass(
        "GPUNotVisible",
        _AREA,
        "The container does not see its GPU.",
        f"{_ACCELERATOR}.gpu.runtimeClassName",
        "Check the node's driver and device plugin, this field and cacheAccess.",
        heals=True,
    ),
    FailureClass(
        "DriverTooOld",
        _AREA,
        "The node's GPU driver is too old for the CUDA in the image.",
        "spec.engine.image",
        "Update the driver, or use an image for an older CUDA. For data-centre GPUs "
        "VLLM_ENABLE_CUDA_COMPATIBILITY=1 in spec.engine.env can help.",
    ),
    FailureClass(
        "GPUUnsupported",
        _AREA,
        "The image has no code for this GPU, or the GPU lacks what the model needs.",
        "spec.pod.nodeSelector",
        "Choose nodes with another GPU, or an image that was built for this one.",
    ),
    FailureClass(
        "GPUFault",
        _AREA,
        "The GPU or its driver failed while it worked.",
        "",
        "The container starts again. If it happens often on one node, have the GPU checked (XID errors in the kernel "
        "log); if on all, another image.",
        heals=True,
    ),
    FailureClass(
        "NCCLFailed",
        _AREA,
        "The ranks of the engine lost or never had contact with each other; often one of them failed first.",
        "spec.engine.env",
        "Look for the first rank that failed. Otherwise set NCCL_DEBUG=INFO here and read the log again.",
        heals=True,
    ),
    FailureClass(
        "CompilerMissing",
        _AREA,
        "The engine wants to compile a kernel, and the image has no compiler.",
        "spec.engine.image",
        "Use an image with nvcc and a C compiler, or settings that need no compilation.",
    ),
    FailureClass(
        "ProcessorUnsupported",
        _AREA,
        "The node's processor lacks instructions that the engine was built for.",
        "spec.pod.nodeSelector",
        "Choose nodes with a newer processor (vLLM's CPU build wants AVX2 or AVX-512).",
    ),
)

RULES = (
    rule(
        "GPUNotVisible",
        r"Device UUID (?P<uuid>[\w-]+) not found in the discovered",
        "The cache server does not see the engine's GPU {uuid}.",
        remedy="Check that it names the way in which the second container gets the GPU on this cluster.",
        field=f"{_ACCELERATOR}.gpu.cacheAccess",
    ),
    rule(
        "DriverTooOld",
        r"(?:The NVIDIA driver on your system is too old(?: \(found version (?P<cuda>\d+)\))?|"
        r"CUDA driver version is insufficient for CUDA runtime version|"
        r"unsupported display driver / cuda driver combination|"
        r"forward compatibility was attempted on non supported HW|"
        r"the provided PTX was compiled with an unsupported toolchain)",
    ),
    rule(
        "GPUNotVisible",
        r"(?:Failed to infer device type|Device string must not be empty|"
        r"libcuda\.so\.1: cannot open shared object file|No CUDA GPUs are available|"
        r"Found no NVIDIA driver on your system|no CUDA-capable device is detected|"
        r"NVMLError_\w+|NVML: Driver/library version mismatch|CUDA driver initialization failed)",
    ),
    rule(
        "GPUUnsupported",
        r"Bfloat16 is only supported on GPUs with compute capability of at least (?P<needed>[\d.]+)\. "
        r"Your (?P<gpu>[^\n]{1,60}?) GPU",
        "The model needs a GPU of compute capability {needed} or more; the node has {gpu}.",
    ),
    rule(
        "GPUUnsupported",
        r"(?:no kernel image is available for execution on the device|cudaErrorNoKernelImageForDevice)",
        "The image has no code for this GPU.",
    ),
    rule(
        "GPUFault",
        r"(?:CUDA error: (?P<fault>an illegal memory access|unspecified launch failure|device-side assert triggered|"
        r"uncorrectable (?:NVLink|ECC) error|misaligned address|the launch timed out|unknown error|"
        r"an illegal instruction)|GPU has fallen off the bus|CUDA_ERROR_ECC_UNCORRECTABLE)",
    ),
    rule(
        "CompilerMissing",
        r"(?:Could not find nvcc|No such file or directory: '[^'\n]{0,100}(?:nvcc|ninja)'|nvcc: (?:command )?not found|"
        r"Failed to find C compiler|Could not find CUDA_HOME|CUDA_HOME environment variable is not set)",
    ),
    rule(
        "NCCLFailed",
        r"(?:NCCL error|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError|ncclInvalidUsage|"
        r"Watchdog caught collective operation timeout|Dist(?:Network|Store|Backend)Error|"
        r"Connection closed by peer \[)",
        tier=Tier.SYMPTOM,
    ),
    rule("ProcessorUnsupported", r"(?:Illegal instruction\b|Failed core proc\(s\): \{[^}\n]*: -4\b)"),
)
