"""The numbers of a Qwen3.5-family checkpoint that decide its block size, read from its `config.json`.

Which architectures share the formula is data of the version profiles: vLLM registers one config class for them
(facts/vllm.md §1.4). Everything else is refused here, because a guess would look like knowledge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qwen_cached_serve.inpod.profiles import load_profiles

DTYPE_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
"""Bytes per element of the dtypes that model and Mamba state come in."""


class GeometryError(ValueError):
    """A model config that cannot be used for a prediction; the message names the key and why."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Dimensions of one checkpoint; counts are of the whole model, before tensor parallelism."""

    architecture: str
    attention_heads: int
    kv_heads: int
    head_dim: int
    linear_key_heads: int
    linear_key_head_dim: int
    linear_value_heads: int
    linear_value_head_dim: int
    conv_kernel: int
    model_dtype: str
    ssm_dtype: str
    """Dtype of the recurrent state when `--mamba-ssm-cache-dtype` is `auto`."""
    linear_layers: int
    attention_layers: int
    max_position_embeddings: int
    checkpoint_kv_dtype: str | None = None
    """What the checkpoint's quantisation scheme makes of `--kv-cache-dtype auto`; None = the model's dtype."""

    @property
    def layers(self) -> int:
        """All layers that keep a cache."""
        return self.linear_layers + self.attention_layers


def geometry_from_config(config: Mapping[str, Any]) -> Geometry:
    """Read the geometry from a Hugging Face `config.json`.

    Raises:
        GeometryError: another architecture, or a missing or senseless number; the message names the key.

    """
    architecture = _architecture(config)
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise GeometryError("text_config: expected an object")
    linear, attention = _layer_counts(text)
    model_dtype = str(text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or "bfloat16")
    if model_dtype not in DTYPE_BYTES:
        raise GeometryError(f"dtype: {model_dtype!r} is not one of {', '.join(sorted(DTYPE_BYTES))}")
    return Geometry(
        architecture=architecture,
        attention_heads=_positive(text, "num_attention_heads"),
        kv_heads=_positive(text, "num_key_value_heads"),
        head_dim=_positive(text, "head_dim"),
        linear_key_heads=_positive(text, "linear_num_key_heads"),
        linear_key_head_dim=_positive(text, "linear_key_head_dim"),
        linear_value_heads=_positive(text, "linear_num_value_heads"),
        linear_value_head_dim=_positive(text, "linear_value_head_dim"),
        conv_kernel=_positive(text, "linear_conv_kernel_dim"),
        model_dtype=model_dtype,
        # vLLM's config class for this family puts the checkpoint's mamba_ssm_dtype in the place of `auto`.
        ssm_dtype=str(text.get("mamba_ssm_dtype") or "float32"),
        linear_layers=linear,
        attention_layers=attention,
        max_position_embeddings=_positive(text, "max_position_embeddings"),
        checkpoint_kv_dtype=_checkpoint_kv_dtype(config),
    )


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise GeometryError("architectures: missing; this is not the config.json of a model that vLLM can serve")
    name = str(names[0])
    supported = load_profiles().architectures
    if name not in supported:
        raise GeometryError(
            f"architectures: {name} has another cache layout than the Qwen3.5 family, so its block size cannot be "
            f"predicted; supported: {', '.join(supported)}"
        )
    return name


def _positive(text: Mapping[str, Any], key: str) -> int:
    value = text.get(key)
    if value is None:
        raise GeometryError(f"text_config.{key}: missing")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise GeometryError(f"text_config.{key}: expected a whole number above 0, got {value!r}")
    return value


def _layer_counts(text: Mapping[str, Any]) -> tuple[int, int]:
    total = _positive(text, "num_hidden_layers")
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        attention = kinds.count("full_attention")
        linear = kinds.count("linear_attention")
        if attention + linear != total:
            raise GeometryError(
                f"text_config.layer_types: {linear} linear_attention + {attention} full_attention layers "
                f"do not make num_hidden_layers {total}"
            )
    else:
        attention = total // _positive(text, "full_attention_interval")
        linear = total - attention
    if not attention or not linear:
        raise GeometryError("text_config.layer_types: a hybrid model needs linear and full attention layers")
    return linear, attention


def _checkpoint_kv_dtype(config: Mapping[str, Any]) -> str | None:
    """Find a quantised KV scheme that the checkpoint ships (compressed-tensors or ModelOpt spelling)."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    algorithm = quantization.get("kv_cache_quant_algo")
    if isinstance(algorithm, str):
        return algorithm.lower()
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return "fp8"
    return None
