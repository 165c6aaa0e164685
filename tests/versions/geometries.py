"""Model folders with the head geometry of real checkpoints and next to nothing else: a config.json and a tokenizer.

N follows from head counts, head sizes and dtypes alone, so layers, widths, vocabulary and experts are cut down: four
layers of hidden size 256 start on any machine. The dimensions that matter are the catalogue's.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "images/model-tiny/tiny-chain-352"
CATALOGUE = ROOT / "operator/src/qwen_cached_serve/core/catalogue.json"

_FROM_SHAPE = ("num_attention_heads", "num_key_value_heads", "linear_num_value_heads")
_FROM_COMMON = (
    "head_dim", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
    "full_attention_interval", "dtype", "mamba_ssm_dtype", "max_position_embeddings",
)  # fmt: skip
_EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
}  # fmt: skip
_MROPE_OF_HEAD_DIM = {256: [11, 11, 10], 32: [2, 1, 1]}
"""mrope_section: a quarter of the head is rotated, and its halves are split in three."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """One row of the test matrix."""

    name: str
    """A shape of the catalogue, or `tiny`."""
    block_size: int | None = None
    """`--block-size`."""
    mamba_ssm_cache_dtype: str | None = None


GEOMETRIES = (
    Geometry("tiny", block_size=32, mamba_ssm_cache_dtype="bfloat16"),
    Geometry("0.8B"),
    Geometry("4B"),
    Geometry("9B"),
    Geometry("27B"),
    Geometry("35B-A3B"),
    Geometry("122B-A10B"),
    Geometry("397B-A17B"),
)


def write_model(geometry: Geometry, folder: Path) -> Path:
    """Write the model's folder; returns it."""
    folder.mkdir(parents=True)
    for path in TINY.iterdir():
        shutil.copy(path, folder)
    if geometry.name != "tiny":
        config = json.loads((TINY / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(_config(config, geometry.name)), encoding="utf-8")
    return folder


def _config(config: dict[str, Any], name: str) -> dict[str, Any]:
    catalogue = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    shape, common = catalogue["shapes"][name], catalogue["common"]
    text = config["text_config"]
    text |= {key: shape[key] for key in _FROM_SHAPE} | {key: common[key] for key in _FROM_COMMON}
    text["rope_parameters"]["mrope_section"] = _MROPE_OF_HEAD_DIM[text["head_dim"]]
    config["architectures"] = [shape["architecture"]]
    if "Moe" in shape["architecture"]:
        text |= _EXPERTS | {"model_type": "qwen3_5_moe_text"}
        text.pop("intermediate_size")
        config["model_type"] = "qwen3_5_moe"
        config["vision_config"]["model_type"] = "qwen3_5_moe"
    return config
