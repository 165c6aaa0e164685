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
    mtp_layers: int = 0
    """Layers for multi-token prediction, used when drafting with them is on; each is one full-attention layer."""
    checkpoint_kv_dtype: str | None = None
    """What the checkpoint's quantisation scheme makes of `--kv-cache-dtype auto`; None = the model's dtype. A scheme
    that is not known stands here in its own words, which no KV dtype matches."""

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
    model_dtype = _dtype("dtype", text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or "bfloat16")
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
        ssm_dtype=_dtype("text_config.mamba_ssm_dtype", text.get("mamba_ssm_dtype") or "float32"),
        linear_layers=linear,
        attention_layers=attention,
        max_position_embeddings=_positive(text, "max_position_embeddings"),
        mtp_layers=_positive(text, "mtp_num_hidden_layers") if text.get("mtp_num_hidden_layers") else 0,
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


def _dtype(key: str, value: Any) -> str:
    # `torch.bfloat16` is what some exporters write.
    name = str(value).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise GeometryError(f"{key}: {name!r} is not one of {', '.join(sorted(DTYPE_BYTES))}")
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
    """Find a quantised KV scheme that the checkpoint ships (compressed-tensors or ModelOpt spelling).

    As vLLM reads it: `utils/torch_utils.py get_kv_cache_quant_algo_string` for ModelOpt, and for compressed-tensors
    `layers/attention/attention.py`, where any `kv_cache_scheme` means fp8 and other than 8-bit floats are refused.
    """
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    inner = quantization.get("quantization")
    for place in (inner, quantization) if isinstance(inner, Mapping) else (quantization,):
        for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
            if place.get(key):
                return _scheme(place[key])
    return None


def _scheme(scheme: Any) -> str:
    if isinstance(scheme, Mapping):
        bits, kind = scheme.get("num_bits"), scheme.get("type")
        if kind == "float" and bits == 8 and not scheme.get("dynamic"):
            return "fp8"
        return "nvfp4" if kind == "float" and bits == 4 else f"a scheme of {bits} bits ({kind})"
    return str(scheme).lower()
