"""Small checkpoints in the layouts that exist, for the fingerprint's tests."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from random import Random
from typing import Any

CONFIG = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {"hidden_size": 64}}
TENSORS = {"model.embed.weight": 40_000, "model.layers.0.mlp.weight": 9_000, "model.norm.weight": 128}
"""Bytes of each tensor: two of which places are sampled, one that is read whole."""


def content(seed: int = 0) -> dict[str, bytes]:
    """Values of a checkpoint's tensors."""
    random = Random(seed)
    return {name: random.randbytes(size) for name, size in TENSORS.items()}


def write_shard(path: Path, tensors: dict[str, bytes], metadata: dict[str, str] | None = None) -> None:
    """Write one safetensors file."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, data in tensors.items():
        entries[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    header = json.dumps(entries).encode("utf-8")
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(tensors.values()))


def write(folder: Path, tensors: dict[str, bytes] | None = None, *, shards: int = 1, index: bool = True) -> Path:
    """Write a checkpoint folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    tensors = content() if tensors is None else tensors
    names = list(tensors)
    if shards == 1:
        write_shard(folder / "model.safetensors", tensors)
        return folder
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[number::shards]}
        write_shard(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    if index:
        text = json.dumps({"metadata": {}, "weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return folder


def write_zip(path: Path, tensors: dict[str, bytes]) -> None:
    """Write what torch.save writes: a zip of stored entries."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in tensors.items():
            archive.writestr(zipfile.ZipInfo(f"archive/data/{name}"), data)


def write_hub_cache(folder: Path, source: Path, commit: str = "c" * 40) -> Path:
    """Lay a checkpoint out as the hub's cache does: a snapshot of links into the blobs."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / commit
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(source.iterdir())):
        blob = blobs / f"{number:064x}"
        blob.write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(Path("..") / ".." / "blobs" / blob.name)
    return snapshot
