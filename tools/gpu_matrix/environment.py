"""One environment per vLLM release, in `${XDG_CACHE_HOME:-~/.cache}/qcs-gpu-matrix/<key>`.

key = hash of the release's hashed requirement file and of the interpreter; made once, under a lock, and it
appears whole or not at all. About 9 GB each, of which uv shares what releases have in common (16 GB for all five).
Beside them lie the two stub libraries of the driver, compiled from the C files here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools import environments

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
_STUBS = {"libcuda.so.1": "no_driver.c", "libnvidia-ml.so.1": "faked_nvml.c"}


def cache() -> Path:
    """Folder of everything the matrix keeps between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qcs-gpu-matrix"


def requirements(release: str) -> Path:
    """Exact pins of a release's environment (made by `tools.gpu_matrix.pins`)."""
    return HERE / "requirements" / f"{release}.txt"


def home(release: str) -> Path:
    """Folder of a release's environment for the current pins."""
    digest = hashlib.sha256(sys.version.encode() + requirements(release).read_bytes())
    return cache() / f"{release}-{digest.hexdigest()[:16]}"


def ensure(release: str) -> Path:
    """Make a release's environment unless it is there; returns its Python.

    Raises:
        subprocess.CalledProcessError: an installation step failed; its words are on standard error.

    """
    return environments.ensure(home(release), lambda target: environments.install(target, requirements(release)))


def stubs() -> Path:
    """Compile the driver stubs unless they are there; returns their folder.

    Raises:
        RuntimeError: no C compiler.

    """
    digest = hashlib.sha256(b"".join((HERE / source).read_bytes() for source in _STUBS.values()))
    target = cache() / f"stubs-{digest.hexdigest()[:16]}"
    if not target.exists():
        if not shutil.which("cc"):
            raise RuntimeError("no C compiler for the driver stubs: install gcc")
        unfinished = target.with_suffix(".tmp")
        unfinished.mkdir(parents=True, exist_ok=True)
        for library, source in _STUBS.items():
            command = ["cc", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{library}", "-o", str(unfinished / library)]
            subprocess.run([*command, str(HERE / source)], check=True)
        unfinished.rename(target)
    return target


def variables(release: str) -> Mapping[str, str]:
    """Return the environment variables of a worker: the stubs, nothing that reaches out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "CUDA_", "NVIDIA_"))}
    return kept | {
        "PYTHONPATH": f"{ROOT / 'operator' / 'src'}:{ROOT}",
        "LD_LIBRARY_PATH": str(stubs()),
        # Empty, not unset: vLLM then takes Triton as usable although no driver is active.
        "CUDA_VISIBLE_DEVICES": "",
        # FlashInfer's kernels for Blackwell count as present, as in the public images; else vLLM asks NVIDIA's server.
        "VLLM_HAS_FLASHINFER_CUBIN": "1",
        "VLLM_CACHE_ROOT": str(home(release) / "vllm-cache"),
        "VLLM_CONFIG_ROOT": str(home(release) / "vllm-config"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
    }
