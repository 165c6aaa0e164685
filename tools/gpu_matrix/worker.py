"""Answers cells of one release; runs in that release's environment (see environment.py).

Each GPU generation gets a process of its own, forked from one that has imported vLLM and answered nothing; it forgets
what vLLM has cached about the device. Constants of modules (tuning of Triton kernels) stay those of the generation that
was there at the import; N, backends and kernel blocks are decided later (`--isolated` shows it: an import each).

The calls are the probe's own (inpod/vllm_api: parse the command line, configure, build the layers on the meta device,
ask the platform), so the matrix also shows that the probe works with each release's GPU wheel. Every answer is written
as one JSON line at once: an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qwen_cached_serve.inpod import vllm_api
from tools.gpu_matrix import faked_cuda, models
from tools.gpu_matrix.cells import FAKED_GPU, Cell, Generation, generation


def arguments(cell: Cell, folder: Path) -> list[str]:
    """Return the `vllm serve` command line of a cell."""
    argv = ["vllm", "serve", str(models.write(cell.model, folder)), "--skip-tokenizer-init", "--load-format", "dummy"]
    # enforce-eager and language-model-only spare the compiler's and the vision tower's set-up; N depends on neither.
    argv += ["--enforce-eager", "--language-model-only", "--enable-prefix-caching", "--distributed-executor-backend"]
    argv += ["mp", "--tensor-parallel-size", str(cell.tensor_parallel_size), "--kv-cache-dtype", cell.kv_cache_dtype]
    if cell.draft_tokens:
        argv += ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": cell.draft_tokens})]
    for flag, value in (
        ("--attention-backend", cell.attention_backend),
        ("--gdn-prefill-backend", cell.gdn_prefill_backend),
        ("--block-size", cell.block_size),
        ("--mamba-ssm-cache-dtype", cell.mamba_ssm_cache_dtype),
    ):
        if value is not None:
            argv += [flag, str(value)]
    return argv


def answer(cell: Cell, folder: Path) -> dict[str, Any]:
    """Return what vLLM says: numbers, or the words of its refusal, or why the question could not be put."""
    try:
        built = vllm_api.construct(vllm_api.configure(vllm_api.parse(arguments(cell, folder))))
    except vllm_api.ArgumentsRefused as refused:
        return {"source": "vllm", "refused": " ".join(str(refused).split())[:400]}
    except Exception as error:  # whatever it was, the row must say "not run", never look like a match
        return {"source": "notRun", "reason": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    return {
        "source": "vllm",
        "blockSize": built.block_size,
        "kernelBlockSize": built.kernel_block_size,
        "attentionBackend": "+".join(built.attention_backends),
        "gdnPrefill": built.gdn_prefill_backend,
        "paddingBytes": built.page_padding_bytes,
    }


def run(cells: Iterable[Cell], folder: Path, out: Path) -> None:
    """Answer the cells, one JSON line each, appended to `out`."""
    with out.open("a", encoding="utf-8") as lines:
        for cell in cells:
            began = time.monotonic()
            said = answer(cell, folder)
            lines.write(json.dumps(cell.row() | said | {"seconds": round(time.monotonic() - began, 2)}) + "\n")
            lines.flush()


def become(gpu: Generation) -> None:
    """Let this process run on another GPU generation from here on."""
    os.environ[FAKED_GPU] = gpu.told
    faked_cuda.describe(gpu.capability, gpu.product, gpu.memory_bytes, gpu.processors)
    faked_cuda.forget()


def preload(gpu: Generation) -> None:
    """Import vLLM and the model's class, which takes most of the time, on any one generation."""
    importlib.import_module("torch")
    faked_cuda.install()
    become(gpu)
    vllm_api.import_vllm()
    importlib.import_module("vllm.model_executor.models.qwen3_5")
    importlib.import_module("vllm.engine.arg_utils")
    logging.disable(logging.WARNING)


def work(job: Mapping[str, Any]) -> None:
    """Answer the cells of one generation, in this process."""
    become(generation(job["generation"]))
    run((Cell.from_row(row) for row in job["cells"]), Path(job["models"]), Path(job["out"]))


def main() -> int:
    """Read a list of `{"generation", "cells", "models", "out"}` from standard input and answer; 1 when one failed."""
    jobs = json.load(sys.stdin)
    preload(generation(jobs[0]["generation"]))
    failed = 0
    for job in jobs:
        print(f"  {job['generation']}: {len(job['cells'])} questions", flush=True)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(job)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        failed |= os.waitpid(child, 0)[1] != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
