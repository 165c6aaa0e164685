"""Folders with the config.json of each model, written from the operator's own catalogue.

Two layers instead of all (one linear, one full attention): vLLM's rule looks at the kinds of layers and at the
dimensions in the configuration, not at their number. MoE models get eight experts for the same reason. Nothing else
differs from the catalogue, so that prediction and engine start from the same numbers.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

_LAYERS = ["linear_attention", "full_attention"]
_TEXT = {
    "intermediate_size": 256,
    "vocab_size": 1024,
    "rms_norm_eps": 1e-06,
    "attn_output_gate": True,
    "mtp_num_hidden_layers": 1,
    "num_hidden_layers": len(_LAYERS),
    "layer_types": _LAYERS,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
    },
}
_EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 256,
}
_VISION = {
    "depth": 1,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_heads": 12,
    "num_position_embeddings": 2304,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "deepstack_visual_indexes": [],
    "in_channels": 3,
    "hidden_act": "gelu_pytorch_tanh",
}


def config_of(model: str) -> dict[str, Any]:
    """Return the config.json of a hub id of the catalogue.

    Raises:
        KeyError: not in the catalogue.

    """
    text = resources.files("qwen_cached_serve.core").joinpath("catalogue.json").read_text(encoding="utf-8")
    catalogue = json.loads(text)
    shape = catalogue["shapes"][catalogue["models"][model]]
    kind = "qwen3_5_moe" if "Moe" in shape["architecture"] else "qwen3_5"
    dimensions = {key: value for key, value in shape.items() if isinstance(value, int) and "_" in key}
    dimensions.pop("parameters_billion", None)
    own = dimensions | catalogue["common"] | _TEXT | {"model_type": f"{kind}_text"}
    return {
        "architectures": [shape["architecture"]],
        "model_type": kind,
        "image_token_id": 1000,
        "video_token_id": 1001,
        "vision_start_token_id": 1002,
        "vision_end_token_id": 1003,
        "text_config": own | (_EXPERTS if kind == "qwen3_5_moe" else {}),
        "vision_config": _VISION | {"model_type": kind, "out_hidden_size": shape["hidden_size"]},
    }


def write(model: str, folder: Path) -> Path:
    """Write the model's folder below `folder`; return it."""
    target = folder / model.rsplit("/", 1)[-1]
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(config_of(model), indent=1), encoding="utf-8")
    return target
