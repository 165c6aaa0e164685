"""The GPUs that a container sees, asked of `nvidia-smi`, which the container toolkit puts beside the driver's
libraries.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from .facts import Gpu
from .refusal import Refusal

_QUERY = "uuid,name,compute_cap,driver_version,memory.total"
_MORE_PLACES = ("/usr/local/nvidia/bin", "/usr/bin")
_TIMEOUT_SECONDS = 60
_MIB = 1 << 20


def visible_gpus() -> tuple[Gpu, ...] | None:
    """GPUs in the driver's order; None when `nvidia-smi` is not there or does not answer (no NVIDIA driver)."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_MORE_PLACES])
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        return None
    command = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_gpus(answer.stdout)


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Read the answer of `nvidia-smi --query-gpu=uuid,name,compute_cap,driver_version,memory.total` (MiB)."""
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_QUERY.split(",")) or not fields[0]:
            continue
        uuid, name, capability, driver, memory = fields
        size = int(memory) * _MIB if memory.isdecimal() else 0
        gpus.append(Gpu(name=name, uuid=uuid, capability=capability, driver=driver, memory_bytes=size))
    return tuple(gpus)


def check_exclusive(visible: tuple[Gpu, ...], asked: int) -> None:
    """Refuse a container that sees more GPUs than its pod asked for: engines of several pods would take the same one.

    Fewer can be right: slices of one GPU (MIG, time-slicing) are listed as that one. `asked` 0 means any number.

    Raises:
        Refusal: DeviceNotExclusive.

    """
    if not asked or len(visible) <= asked:
        return
    raise Refusal(
        "DeviceNotExclusive",
        f"the container sees {len(visible)} GPUs, but spec.engine.accelerator.gpu.count asks for {asked}: nothing "
        "tells which of them Kubernetes gave to this pod",
        "Likely causes: the image sets NVIDIA_VISIBLE_DEVICES=all and the device plugin's list strategy is not envvar, "
        "which would overrule it; or something makes the container privileged. Correct that, or use another "
        "spec.engine.image.",
    )


def check_same_gpus(probed: tuple[Gpu, ...], visible: tuple[Gpu, ...] | None, *, exclusive: bool) -> None:
    """Refuse to start on other GPUs than the probed ones (case B41).

    `exclusive`: the container holds the GPUs itself and must see exactly the probed ones; otherwise (the cache server,
    which may see every GPU of the node) they must be among those it sees.

    Raises:
        Refusal: DeviceMissing or DeviceChanged.

    """
    if not probed:
        return
    if not visible:
        raise Refusal(
            "DeviceMissing",
            f"no GPU is visible, but the probe saw {probed[0].name} ({probed[0].uuid})",
            "Check the runtime class or CDI setting of spec.engine.accelerator.gpu.cacheAccess and the node's driver.",
        )
    wanted, seen = {gpu.uuid for gpu in probed}, {gpu.uuid for gpu in visible}
    if wanted == seen if exclusive else wanted <= seen:
        return
    raise Refusal(
        "DeviceChanged",
        f"the probe ran on {', '.join(sorted(wanted))}, this container sees {', '.join(sorted(seen))}",
        "Delete the pod (kubectl delete pod): in a new one every container gets the same GPUs.",
    )
