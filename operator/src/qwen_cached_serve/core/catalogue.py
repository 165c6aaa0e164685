"""Geometry of the well-known checkpoints, so that a plan needs neither a download nor a cluster.

The numbers are excerpts of the models' `config.json` (facts/vllm.md §1.4). A plan made from them says so, and what is
only assumed is marked: the probe reads the real file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from qwen_cached_serve.core.geometry import Geometry, geometry_from_config

_WEIGHT_FORMATS = ("-FP8", "-GPTQ-Int4", "-AWQ", "-NVFP4")
"""Suffixes of quantised re-releases: other weights, the same dimensions."""
_KV_UNKNOWN = ("-NVFP4",)
"""Those whose exporter (ModelOpt) usually ships a quantised KV scheme as well: only the real file tells."""


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One known checkpoint."""

    model: str
    """Hub id as asked for."""
    geometry: Geometry
    confidence: str
    """`Confirmed`, or `Assumed` with the reason in `note`."""
    parameters_billion: float
    note: str = ""
    kv_dtype_known: bool = True
    """Whether `--kv-cache-dtype auto` is the model's dtype; a re-release can bring a KV scheme of its own."""


def lookup(model: str) -> CatalogueEntry | None:
    """Find a hub id, also with the suffix of a quantised re-release; None when it is not known."""
    data = _data()
    base, suffix = model, ""
    for ending in _WEIGHT_FORMATS:
        if model.endswith(ending):
            base, suffix = model.removesuffix(ending), ending
            break
    name = data["models"].get(model) or data["models"].get(base)
    if name is None:
        return None
    shape = data["shapes"][name]
    text = {key: value for key, value in shape.items() if isinstance(value, int)} | data["common"]
    geometry = geometry_from_config({"architectures": [shape["architecture"]], "text_config": text})
    note = shape.get("note", "")
    confidence = shape["confidence"]
    if suffix and model not in data["models"]:
        confidence = "Assumed"
        note = f"dimensions of {base} taken; a quantised checkpoint may also change the KV dtype and with it N"
    plain_kv = suffix not in _KV_UNKNOWN
    return CatalogueEntry(model, geometry, confidence, float(shape["parameters_billion"]), note, plain_kv)


def refusal(model: str) -> str | None:
    """Say why a well-known model is not one of these; None for all others."""
    words: str | None = _data()["refused"].get(model)
    return words


def known_models() -> tuple[str, ...]:
    """Every hub id in the catalogue."""
    return tuple(sorted(_data()["models"]))


@cache
def _data() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("catalogue.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
