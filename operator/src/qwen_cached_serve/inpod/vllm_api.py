"""The only module that touches vLLM's Python API: what moved between releases is found here and nowhere else.

Order of the calls and their meaning: facts/chain-without-gpu.md §7, read in vLLM 0.31 to 0.33. Import it late: it takes
seconds and needs the device.
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


@dataclass(frozen=True, slots=True)
class Constructed:
    """What vLLM decided once the layers existed."""

    block_size: int
    kernel_block_size: int
    attention_backends: tuple[str, ...]
    gdn_prefill_backend: str
    page_padding_bytes: int


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
    build = _first(("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"), "make_arg_parser")
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
    try:
        return engine_args.from_cli_args(arguments).create_engine_config(usage_context=context)
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise ArgumentsRefused(_validation_words(error)) from error


def known_architectures() -> frozenset[str]:
    """Architectures that this vLLM can serve."""
    return frozenset(_first(("vllm.model_executor.models",), "ModelRegistry").get_supported_archs())


def construct(config: Any) -> Constructed:
    """Build the layers on the meta device (no weights) and let the platform align the block size.

    Raises:
        ArgumentsRefused: no common block size, a backend that refuses the configuration.

    """
    torch: Any = importlib.import_module("torch")
    platform: Any = importlib.import_module("vllm.platforms").current_platform
    current = _first(("vllm.config",), "set_current_vllm_config")
    initialize_model = _first(("vllm.model_executor.model_loader.utils",), "initialize_model")
    try:
        with _single_process(config), current(config):
            with torch.device("meta"):
                model = initialize_model(vllm_config=config)
            platform.update_block_size_for_backend(config)
            layers = _attention_layers(config)
            backends = _unique([layer.get_attn_backend() for layer in layers if not layer.get_attn_backend().is_ssm()])
            block_size = int(config.cache_config.block_size)
            del model
            return Constructed(
                block_size=block_size,
                kernel_block_size=_kernel_block(block_size, backends),
                attention_backends=tuple(backend.get_name() for backend in backends),
                gdn_prefill_backend=_gdn_prefill(layers),
                page_padding_bytes=_page_padding(config),
            )
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise ArgumentsRefused(_validation_words(error)) from error


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


def _attention_layers(config: Any) -> list[Any]:
    """Layers with a KV cache of the language model; a vision tower's attention has none and does not count."""
    base = _first(("vllm.model_executor.layers.attention_layer_base",), "AttentionLayerBase")
    context = config.compilation_config.static_forward_context
    return [layer for layer in context.values() if isinstance(layer, base)]


def _kernel_block(block_size: int, backends: list[Any]) -> int:
    if not backends:
        return block_size
    select = _first(("vllm.v1.worker.utils",), "select_common_block_size")
    return int(select(block_size, backends))


def _gdn_prefill(layers: list[Any]) -> str:
    names = [str(layer.gdn_prefill_backend) for layer in layers if getattr(layer, "gdn_prefill_backend", None)]
    return names[0] if names else ""


def _page_padding(config: Any) -> int:
    """Bytes by which a recurrent page is padded to the attention page: the padded size less the state's own."""
    padded = config.cache_config.mamba_page_size_padded
    if not padded:
        return 0
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
    return int(padded) - int(spec.page_size_bytes)


def _unique(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


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
