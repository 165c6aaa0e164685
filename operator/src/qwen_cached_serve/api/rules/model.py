"""Rules about the checkpoint and its volumes."""

from __future__ import annotations

import re

from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import union
from qwen_cached_serve.api.v1alpha1 import defaults

_HUB_ID = r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?"
_INNER_PATH = r"[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*"

_ON_HUB = {
    "model": {"name": "Qwen/Qwen3.6-27B", "source": {"type": "HuggingFace", "huggingFace": {"revision": "main"}}}
}
_ON_CLAIM = {
    "model": {
        "name": "weights v2",
        "source": {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "m"}},
    }
}
_IN_IMAGE = {"model": {"name": ".", "source": {"type": "Image", "image": {"reference": "registry.example/q:1"}}}}
_SCRATCH = {"model": {"downloadVolume": {"type": "EmptyDir", "emptyDir": {"sizeLimit": "100Gi"}}}}
_KEPT = {"model": {"downloadVolume": {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "hub"}}}}


def _source_type(model: Node) -> str:
    return str(model.get("source", {}).get("type", defaults.MODEL_SOURCE))


def _named(path: str, example: Node = _ON_CLAIM) -> dict[str, Node]:
    return {"model": {**example["model"], "name": path}}


def _offline_has_files(model: Node) -> bool:
    offline = model.get("source", {}).get("huggingFace", {}).get("offline") == "Enabled"
    return not offline or model.get("downloadVolume", {}).get("type") == "PersistentVolumeClaim"


def _offline(volume: Node) -> dict[str, Node]:
    return {"model": {"source": {"huggingFace": {"offline": "Enabled"}}, **volume}}


RULES = (
    *union(
        "spec.model.source",
        {"HuggingFace": "huggingFace", "PersistentVolumeClaim": "persistentVolumeClaim", "Image": "image"},
        default=defaults.MODEL_SOURCE,
        required=("PersistentVolumeClaim", "Image"),
        examples={"HuggingFace": _ON_HUB, "PersistentVolumeClaim": _ON_CLAIM, "Image": _IN_IMAGE},
    ),
    *union(
        "spec.model.downloadVolume",
        {"EmptyDir": "emptyDir", "PersistentVolumeClaim": "persistentVolumeClaim"},
        default=defaults.DOWNLOAD_VOLUME,
        required=("PersistentVolumeClaim",),
        examples={"EmptyDir": _SCRATCH, "PersistentVolumeClaim": _KEPT},
    ),
    Rule(
        name="model.name-is-hub-id",
        scopes=("spec.model",),
        cel=f"self.?source.?type.orValue('HuggingFace') != 'HuggingFace' || self.name.matches({quote(f'^{_HUB_ID}$')})",
        holds=lambda model: _source_type(model) != "HuggingFace" or bool(re.fullmatch(_HUB_ID, model["name"])),
        field=".name",
        problem="model.name is not an id of the Hugging Face Hub",
        remedy="write owner/name as in Qwen/Qwen3.6-27B, or choose a model.source.type whose name is a path",
        accepts=({"model": {"name": "Qwen/Qwen3.6-27B"}}, {"model": {"name": "gpt2"}}),
        rejects=tuple(
            {"model": {"name": name}}
            for name in ("/mnt/models/weights v2", 'org/it\'s a $HOME "test"', "a/b/c", "../x", "Qwen/", "Qwen/x\n")
        ),
    ),
    Rule(
        name="model.name-is-path-in-volume",
        scopes=("spec.model",),
        cel=(
            "self.?source.?type.orValue('HuggingFace') == 'HuggingFace' || "
            f"(self.name.matches({quote(f'^{_INNER_PATH}$')}) && !self.name.split('/').exists(part, part == '..'))"
        ),
        holds=lambda model: (
            _source_type(model) == "HuggingFace"
            or (bool(re.fullmatch(_INNER_PATH, model["name"])) and ".." not in model["name"].split("/"))
        ),
        field=".name",
        problem="model.name is not a path inside the model volume",
        remedy='write it relative to the root of the volume, without ".." ("." is the root itself)',
        accepts=(_named('org/it\'s a $HOME "test"'), _named("."), _named("a..b/c", _IN_IMAGE)),
        rejects=(_named("/mnt/models/weights v2"), _named("../other"), _named("a/../b", _IN_IMAGE), _named("a\nb")),
    ),
    Rule(
        name="model.source.huggingFace.offline-needs-claim",
        scopes=("spec.model",),
        cel=(
            "self.?source.?huggingFace.?offline.orValue('Disabled') == 'Disabled' || "
            "self.?downloadVolume.?type.orValue('EmptyDir') == 'PersistentVolumeClaim'"
        ),
        holds=_offline_has_files,
        field=".source.huggingFace.offline",
        problem="model.source.huggingFace.offline is Enabled, but the download volume of a new pod is empty",
        remedy="set model.downloadVolume.type: PersistentVolumeClaim with a claim that already holds the model",
        accepts=(_offline(_KEPT["model"]), {"model": {"source": {"huggingFace": {"offline": "Disabled"}}}}),
        rejects=(_offline({}), _offline(_SCRATCH["model"])),
    ),
    Rule(
        name="model.servedNames-unique",
        scopes=("spec.model.servedNames",),
        cel="self.all(name, self.filter(other, other == name).size() == 1)",
        holds=lambda names: len(set(names)) == len(names),
        problem="model.servedNames has a name twice",
        remedy="remove one of them",
        accepts=({"model": {"servedNames": ["qwen", "qwen3.6"]}},),
        rejects=({"model": {"servedNames": ["qwen", "qwen"]}},),
    ),
)
