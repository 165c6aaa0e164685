"""What a revision is made from: the part of a spec that reaches the pods, in one spelling (DESIGN D10).

Left out: fields that keep the pods (their mark in the models says so, the same one that the CRD's descriptions are
made from), fields equal to their default, and what is empty then. The API server also fills defaults into stored
objects when it reads them, so a CRD with one more default must not look like an edit. Inside lists nothing that is
empty is left out: an empty toleration or label selector has a meaning.

The image is not part of the hash. A resource that names none gets the operator's, and that one's change must not look
like an edit either; so the image is compared beside the hash (`core.revision.matching`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from qwen_cached_serve.api.base import Default, Restarts
from qwen_cached_serve.api.v1alpha1.resource import Spec

_HASH_CHARACTERS = 16


def canonical(spec: Spec) -> dict[str, Any]:
    """Return what of a spec reaches the pods, as JSON data."""
    found: dict[str, Any] = _model(spec, pods=True, in_list=False)
    return found


def spec_hash(spec: Spec) -> str:
    """Return the hash of `canonical` without the image."""
    shape = canonical(spec)
    engine = {name: value for name, value in shape.get("engine", {}).items() if name != "image"}
    shape = {name: value for name, value in shape.items() if name != "engine"} | ({"engine": engine} if engine else {})
    return digest(shape)


def tuning_hash(tuning: Mapping[str, Any]) -> str:
    """Return the hash of what the operator adjusted by itself, empty when that is nothing."""
    return digest(dict(tuning)) if tuning else ""


def digest(value: Any) -> str:
    """Return a short hash of JSON data, valid as a label's value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_HASH_CHARACTERS]


def _model(model: BaseModel, *, pods: bool, in_list: bool) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if value is None:
            continue
        mark = next((entry for entry in info.metadata if isinstance(entry, Restarts)), None)
        reaches = mark.pods if mark else pods
        if any(isinstance(entry, Default) and entry.value == value for entry in info.metadata):
            continue
        inner = _value(value, pods=reaches, in_list=in_list)
        if not reaches and not isinstance(value, BaseModel):
            continue
        if isinstance(inner, dict | list) and not inner and not (in_list and reaches):
            continue
        shape[info.alias or name] = inner
    return shape


def _value(value: Any, *, pods: bool, in_list: bool) -> Any:
    if isinstance(value, BaseModel):
        return _model(value, pods=pods, in_list=in_list)
    if isinstance(value, Mapping):
        return {str(key): _value(item, pods=pods, in_list=in_list) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item, pods=pods, in_list=True) for item in value]
    return value
