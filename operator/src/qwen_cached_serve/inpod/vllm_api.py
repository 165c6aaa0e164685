"""The only module that touches vLLM's Python API: what moved between releases is found here and nowhere else.

Order of the calls and their meaning: facts/chain-without-gpu.md §7; read in vLLM 0.25 to 0.33, run with 0.25, 0.29 and
0.32 (`make test-versions`). Import it late: it takes seconds and needs the device.

Where a release has another API an ImportError, AttributeError or TypeError comes out of here; where it answers in a way
that cannot be right, `NotUnderstood` does. Both mean that N must be found another way, not that the pod cannot serve.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ArgumentsRefused(Exception):  # noqa: N818 - the parser's answer, not a defect of ours
    """vLLM's parser or its configuration refuses the arguments; the message is in its own words."""


class NotUnderstood(Exception):  # noqa: N818 - a finding about this module
    """vLLM's answer does not hold together: what was asked is not what the engine itself would do."""


@dataclass(frozen=True, slots=True)
class Constructed:
    """What vLLM decided once the layers existed. Bytes are those of one tensor-parallel rank."""

    block_size: int
    kernel_block_size: int
    attention_backends: tuple[str, ...]
    gdn_prefill_backend: str
    page_padding_bytes: int
    block_bytes: int
    """One block of N tokens in every layer that has a cache."""


def import_vllm() -> None:
    """Import vLLM and torch."""
    importlib.import_module("vllm")
    importlib.import_module("torch")


def platform_kind() -> str:
    """`GPU`, `CPU`, or empty when vLLM finds no device."""
    platform: Any = importlib.import_module("vllm.platforms").current_platform
    if platform.is_cpu():
        return "CPU"
    return "GPU" if platform.is_cuda_alike() or platform.is_xpu() else ""


def device_count() -> int:
    """Number of GPUs that torch sees."""
    torch: Any = importlib.import_module("torch")
    return int(torch.cuda.device_count()) if hasattr(torch, "cuda") else 0


def parse(argv: Sequence[str]) -> Any:
    """Parse `vllm serve …` with vLLM's own parser.

    Raises:
        ArgumentsRefused: in the parser's words.

    """
    parser_class = _first(("vllm.utils.argparse_utils", "vllm.utils"), "FlexibleArgumentParser")
    places = ("common", "launchers", "openai")  # since 0.33, 0.29 and before
    build = _first([f"vllm.entrypoints.{place}.cli_args" for place in places], "make_arg_parser")
    parser = parser_class(prog="vllm")
    build(parser.add_subparsers(dest="subparser").add_parser("serve"))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            arguments = parser.parse_args(list(argv[1:]))
    except SystemExit as end:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        errors = [line for line in lines if "error:" in line]
        raise ArgumentsRefused((errors or lines or [f"the parser ended with {end.code}"])[-1].strip()) from end
    except (ValueError, AssertionError) as error:
        raise ArgumentsRefused(str(error)) from error
    if getattr(arguments, "model_tag", None) is not None:
        arguments.model = arguments.model_tag
    return arguments


def configure(arguments: Any) -> Any:
    """Build the engine's configuration exactly as the server would.

    Raises:
        ArgumentsRefused: values that do not go together, in vLLM's words.

    """
    engine_args = _first(("vllm.engine.arg_utils",), "AsyncEngineArgs")
    context = _first(("vllm.usage.usage_lib",), "UsageContext").OPENAI_API_SERVER
    _inspect_here()
    try:
        return engine_args.from_cli_args(arguments).create_engine_config(usage_context=context)
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise ArgumentsRefused(_validation_words(error)) from error


def _inspect_here() -> None:
    """Have the model's class inspected in this process.

    vLLM starts another interpreter for it, which imports torch and vLLM once more, so that its own process stays free
    of CUDA until it forks. This one forks nothing and imports the class right after. A release without the function
    just takes longer; the inspection's result lands in vLLM's cache as always, where the engine finds it.
    """
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda inspect_model: inspect_model()


def construct(config: Any) -> Constructed:
    """Build the layers on the meta device (no weights) and let the platform align the block size.

    Raises:
        ArgumentsRefused: no common block size, a backend that refuses the configuration.
        NotUnderstood: N does not fit the layers.

    """
    torch: Any = importlib.import_module("torch")
    platform: Any = importlib.import_module("vllm.platforms").current_platform
    current = _first(("vllm.config",), "set_current_vllm_config")
    initialize_model = _first(("vllm.model_executor.model_loader.utils",), "initialize_model")
    try:
        with _single_process(config), current(config):
            with _default_dtype(torch, config.model_config.dtype), torch.device("meta"):
                model = initialize_model(vllm_config=config)
            platform.update_block_size_for_backend(config)
            layers = _cache_layers(config)
            attention = [layer for layer in layers if not layer.get_attn_backend().is_ssm()]
            block_size = int(config.cache_config.block_size)
            page, padding = _pages(config, attention, block_size)
            del model
            return Constructed(
                block_size=block_size,
                kernel_block_size=_kernel_block(config, block_size, attention),
                attention_backends=tuple(
                    dict.fromkeys(str(layer.get_attn_backend().get_name()) for layer in attention)
                ),
                gdn_prefill_backend=_gdn_prefill(layers),
                page_padding_bytes=padding,
                block_bytes=page * len(layers),
            )
    except (ValueError, AssertionError) as error:
        # A bare assertion explains nothing to the user; neither does NotImplementedError, torch's word for a layer that
        # cannot be built without its data. Both are findings about this way of asking.
        if not str(error):
            raise
        raise ArgumentsRefused(_validation_words(error)) from error


@contextlib.contextmanager
def _default_dtype(torch: Any, dtype: Any) -> Iterator[None]:
    """As vLLM's loader does: an attention layer takes torch's default dtype for its own and chooses its backend by it.

    Under float32, torch's default, GPUs get TRITON_ATTN instead of FLASH_ATTN or FLASHINFER.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _single_process(config: Any) -> Iterator[None]:
    """vLLM's layers ask for process groups; one process stands for every rank, since N follows from the
    configuration.
    """
    init_environment = _first(("vllm.distributed",), "init_distributed_environment")
    init_groups = _first(("vllm.distributed",), "initialize_model_parallel")
    current = _first(("vllm.config",), "set_current_vllm_config")
    with tempfile.TemporaryDirectory(prefix="qcs-probe-") as folder:
        with current(config):
            init_environment(
                world_size=1,
                rank=0,
                local_rank=0,
                backend="gloo",
                distributed_init_method=f"file://{Path(folder) / 'rendezvous'}",
            )
            init_groups(1)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # clean-up at the very end: the process ends next
                _first(("vllm.distributed",), "destroy_model_parallel")()
                _first(("vllm.distributed",), "destroy_distributed_environment")()


def _cache_layers(config: Any) -> list[Any]:
    """Layers with a KV cache of the language model; a vision tower's attention has none and does not count."""
    base = _first(("vllm.model_executor.layers.attention_layer_base",), "AttentionLayerBase")
    context = config.compilation_config.static_forward_context
    return [layer for layer in context.values() if isinstance(layer, base)]


def _kernel_block(config: Any, block_size: int, attention: list[Any]) -> int:
    if not attention:
        return block_size
    select = _first(("vllm.v1.worker.utils",), "select_common_block_size")
    kinds = {layer.get_attn_backend(): layer for layer in attention}
    if "kv_cache_specs" in inspect.signature(select).parameters:  # 0.33: a backend's sizes depend on the layer's cache
        specs = [layer.get_kv_cache_spec(config) for layer in kinds.values()]
        return int(select(block_size, list(kinds), specs))
    return int(select(block_size, list(kinds)))


def _gdn_prefill(layers: list[Any]) -> str:
    names = [str(layer.gdn_prefill_backend) for layer in layers if getattr(layer, "gdn_prefill_backend", None)]
    return names[0] if names else ""


def _pages(config: Any, attention: list[Any], block_size: int) -> tuple[int, int]:
    """Bytes of a layer's page for N tokens, and by how many of them a recurrent state is padded up to it.

    The engine keeps pages of one size for all layers. If N does not give that, it is not the engine's N: a release can
    have moved the place where N is settled, and would leave the plain default here without an error.
    """
    spec = next((found for layer in attention if (found := layer.get_kv_cache_spec(config)) is not None), None)
    if block_size <= 0 or spec is None:
        raise NotUnderstood(f"vLLM reports a block size of {block_size} and {len(attention)} attention layers")
    # The layers were built for one rank that stands for all, so their heads are those of the whole model.
    heads = int(config.model_config.get_num_kv_heads(config.parallel_config))
    page = int(spec.page_size_bytes) * block_size * heads // (int(spec.block_size) * int(spec.num_kv_heads))
    state = _state_bytes(config)
    if (config.cache_config.mamba_page_size_padded or state) != page:
        raise NotUnderstood(
            f"with a block size of {block_size} an attention page has {page} bytes and a recurrent one {state}, padded "
            f"to {config.cache_config.mamba_page_size_padded}: the engine would not use this block size"
        )
    return page, page - state


def _state_bytes(config: Any) -> int:
    """Bytes of one sequence's state in one recurrent layer, unpadded."""
    registry = _first(("vllm.model_executor.models",), "ModelRegistry")
    spec_class = _first(("vllm.v1.kv_cache_interface",), "MambaSpec")
    architecture = config.model_config.architecture
    if "model_config" in inspect.signature(registry.resolve_model_cls).parameters:
        model_class, _ = registry.resolve_model_cls(architecture, model_config=config.model_config)
    else:
        model_class, _ = registry.resolve_model_cls(architecture)
    spec = spec_class(
        shapes=model_class.get_mamba_state_shape_from_config(config),
        dtypes=model_class.get_mamba_state_dtype_from_config(config),
        block_size=-1,
    )
    return int(spec.page_size_bytes)


def _first(modules: Sequence[str], name: str) -> Any:
    """The name from the first of several modules that has it: where it lies differs between releases."""
    for module in modules:
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(module), name, None)
            if found is not None:
                return found
    raise ImportError(f"this vLLM has no {name} in {' or '.join(modules)}")


def _validation_words(error: Exception) -> str:
    """pydantic wraps the words of a validator into several lines; keep the sentence."""
    listed = getattr(error, "errors", None)
    if callable(listed):
        with contextlib.suppress(Exception):
            return "; ".join(str(item["msg"]) for item in listed())
    return " ".join(str(error).split()) or type(error).__name__
