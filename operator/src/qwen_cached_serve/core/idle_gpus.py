"""GPUs that a pod asks for and no rank of the engine uses.

Allowed, since resources were stored with it, and never wanted: the operator gives replicas, not data parallelism.
"""

from __future__ import annotations

from qwen_cached_serve.inpod.arguments import canonical
from qwen_cached_serve.inpod.facts import ServeSettings
from qwen_cached_serve.inpod.neutral import ENGINE, load_neutral

_MORE_RANKS = frozenset({
    "--tensor-parallel-size", "--pipeline-parallel-size", "--prefill-context-parallel-size", "--data-parallel-size",
    "--data-parallel-size-local",
})  # fmt: skip
"""With these in spec.unsupported the engine may well use the rest."""


def idle_gpus(settings: ServeSettings, vllm: str) -> tuple[str, ...]:
    """A note where the ranks are fewer than the GPUs; `vllm` is the engine's release, empty where it is not known."""
    engine, gpus, ranks = settings.engine, settings.gpu_count, settings.engine.tensor_parallel_size
    if gpus <= ranks:
        return ()
    if not _MORE_RANKS.isdisjoint(canonical(engine.unsupported_args, load_neutral().programs[ENGINE], vllm)):
        return ()
    note = (
        f"engine.vllm.tensorParallelSize {ranks} uses {ranks} of the pod's {gpus} GPUs, the rest stay idle: set "
        "engine.accelerator.gpu.count to the same number and raise spec.replicas, or drop tensorParallelSize"
    )
    return (note,)
