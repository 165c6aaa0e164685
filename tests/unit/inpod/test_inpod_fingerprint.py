"""The checkpoint's fingerprint: what makes it differ, what does not, and what it honestly cannot see."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.fingerprint import PLACE_BYTES, PLACES, content_hash, fingerprint
from qwen_cached_serve.inpod.refusal import Refusal
from tests.unit.inpod.checkpoints import CONFIG, TENSORS, content, write, write_hub_cache, write_shard, write_zip


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def places(length: int) -> list[int]:
    """First byte of each sampled place, as the module's text says it."""
    return [place * (length - PLACE_BYTES) // (PLACES - 1) for place in range(PLACES)]


def test_two_copies_are_one(tmp_path: Path) -> None:
    made = fingerprint(write(tmp_path / "a"))
    assert made == fingerprint(write(tmp_path / "b"))
    assert (made.weight_files, made.tensors) == (1, len(TENSORS))
    assert made.bytes_read < 2 * PLACES * PLACE_BYTES + sum(TENSORS.values()) / 4


@pytest.mark.parametrize("tensor", sorted(TENSORS))
@pytest.mark.parametrize("place", range(PLACES))
def test_one_value_of_one_place_of_any_tensor(tmp_path: Path, tensor: str, place: int) -> None:
    tensors = content()
    position = places(len(tensors[tensor]))[place] if len(tensors[tensor]) > PLACES * PLACE_BYTES else place
    changed = tensors | {tensor: flip(tensors[tensor], position)}
    assert fingerprint(write(tmp_path / "a", tensors)).digest != fingerprint(write(tmp_path / "b", changed)).digest


def test_last_value(tmp_path: Path) -> None:
    changed = {name: flip(data, len(data) - 1) for name, data in content().items()}
    assert fingerprint(write(tmp_path / "a")).digest != fingerprint(write(tmp_path / "b", changed)).digest


def test_a_single_value_outside_of_all_places_is_not_seen(tmp_path: Path) -> None:
    """The limit that the documentation names: this is no promise, it is what sampling means."""
    tensors = content()
    name = "model.embed.weight"
    position = places(TENSORS[name])[0] + PLACE_BYTES + 1
    changed = tensors | {name: flip(tensors[name], position)}
    assert fingerprint(write(tmp_path / "a", tensors)).digest == fingerprint(write(tmp_path / "b", changed)).digest


@pytest.mark.parametrize("share", [1.0, 0.02])
def test_a_fine_tune_is_seen_even_when_it_moves_few_values(tmp_path: Path, share: float) -> None:
    """2 % of the values of one tensor, spread: less than sparse updates of reinforcement learning change."""
    tensors = content()
    data = bytearray(tensors["model.embed.weight"])
    for position in range(7, len(data), int(1 / share)):
        data[position] ^= 1
    changed = tensors | {"model.embed.weight": bytes(data)}
    assert fingerprint(write(tmp_path / "a", tensors)).digest != fingerprint(write(tmp_path / "b", changed)).digest


def rewrite_config(folder: Path, **changes: object) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes, indent=3), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda folder: rewrite_config(folder), True),
        (lambda folder: rewrite_config(folder, transformers_version="9.9", _name_or_path="/x"), True),
        (lambda folder: rewrite_config(folder, rope_theta=1_000_000), False),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), True),
        (lambda folder: (folder / "generation_config.json").write_text('{"top_k": 1}'), True),
        (lambda folder: (folder / "README.md").write_text("# read"), True),
        (lambda folder: (folder / "figure.png").write_bytes(b"png"), True),
        (lambda folder: (folder / "download.lock").write_bytes(b""), True),
        (lambda folder: (folder / ".cache.json").write_text("{}"), True),
        (lambda folder: (folder / "hf_quant_config.json").write_text("{}"), False),
        (lambda folder: (folder / "modeling_qwen.py").write_text("x = 1"), False),
        (lambda folder: write_shard(folder / "more.safetensors", {"x": b"1"}), False),
        (lambda folder: (folder / "model.safetensors").rename(folder / "other.safetensors"), False),
        (lambda folder: (folder / "old").mkdir(), True),
    ],
)  # fmt: skip
def test_files_beside_the_weights(tmp_path: Path, change: Callable[[Path], object], same: bool) -> None:
    plain, changed = write(tmp_path / "a"), write(tmp_path / "b")
    change(changed)
    assert (fingerprint(plain).digest == fingerprint(changed).digest) is same


def test_ordinary_checkpoints_keep_the_name_of_former_releases(tmp_path: Path) -> None:
    """Pods that run must keep their store over an upgrade of the operator: byte for byte the same."""
    folder = write(tmp_path / "m", shards=2)
    neutral = ("LICENSE", "README.md", ".gitattributes", "tokenizer.json", "tokenizer_config.json", "vocab.json",
               "merges.txt", "generation_config.json", "chat_template.jinja", "figure.png", "qwen.tiktoken", "Notice",
               "paper.pdf")  # fmt: skip
    for name in neutral:
        (folder / name).write_text("{}")
    for name in ("preprocessor_config.json", "video_preprocessor_config.json", "configuration.json"):
        (folder / name).write_text('{"a": 1}')
    (folder / "assets").mkdir()
    made = fingerprint(folder)
    assert made.digest == "5773f9e068c0ebf6975eeff771b23d62"
    assert (made.weight_files, made.tensors, made.bytes_read) == (2, 3, 8907)
    assert fingerprint(folder, weights=False).digest == "20a592c89219f96f00323a04a81f31c7"


@pytest.mark.parametrize(
    "name",
    ["model.tensors", "model-rank-000.tensors", "weights.npz", "weights.npy", "model.ckpt", "weights.pth.tar",
     "model.of-a-plugin", "kernel.cu"],
)  # fmt: skip
def test_weights_of_any_loader_count(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "m")
    found = [fingerprint(folder).digest]
    for data in (b"a" * 100, b"b" * 100):
        (folder / name).write_bytes(data)
        found.append(fingerprint(folder).digest)
    assert len(set(found)) == 3
    assert fingerprint(folder).weight_files == 2
    assert fingerprint(folder, weights=False) == fingerprint(write(tmp_path / "plain"), weights=False)


def test_archives_of_numpy_are_known_by_their_checksums(tmp_path: Path) -> None:
    tensors = content()
    name = "model.embed.weight"
    hidden = tensors | {name: flip(tensors[name], places(TENSORS[name])[0] + PLACE_BYTES + 1)}
    for folder, data in (("a", tensors), ("b", hidden)):
        write_zip(write(tmp_path / folder) / "weights.npz", data)
    assert fingerprint(tmp_path / "a").digest != fingerprint(tmp_path / "b").digest


def test_a_file_without_a_suffix_counts_when_it_is_too_large_for_a_text(tmp_path: Path) -> None:
    found = []
    for size in (None, 1 << 20, 17 << 20):
        folder = write(tmp_path / str(size))
        if size:
            with (folder / "WEIGHTS").open("wb") as file:
                file.truncate(size)
        found.append(fingerprint(folder).digest)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("spoil", ["link", "like a zip"])
def test_what_is_wrong_with_a_file_of_unknown_kind_is_the_engines_to_say(tmp_path: Path, spoil: str) -> None:
    """It stopped no pod before such files counted."""
    folder = write(tmp_path / "m")
    if spoil == "link":
        (folder / "model.other").symlink_to(folder / "gone")
    else:
        (folder / "model.other").write_bytes(b"x" * 64 + b"PK\x05\x06" + bytes(4) + b"\xff" * 12 + bytes(2))
    assert fingerprint(folder).digest


def test_header_counts(tmp_path: Path) -> None:
    plain, renamed = write(tmp_path / "a"), write(tmp_path / "b")
    write_shard(renamed / "model.safetensors", dict(zip(("x", "y", "z"), content().values(), strict=True)))
    assert fingerprint(plain).digest != fingerprint(renamed).digest


def test_hub_cache_with_links_is_the_same_as_plain_files(tmp_path: Path) -> None:
    plain = write(tmp_path / "a", shards=3)
    assert fingerprint(write_hub_cache(tmp_path / "hub", plain)) == fingerprint(plain)


def test_shards_without_an_index(tmp_path: Path) -> None:
    assert fingerprint(write(tmp_path / "a", shards=2, index=False)).weight_files == 2


def test_the_index_of_a_format_that_nobody_copied_is_not_asked(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", shards=2)
    gone = json.dumps({"weight_map": {"x": "pytorch_model-00001-of-00001.bin"}})
    (folder / "pytorch_model.bin.index.json").write_text(gone)
    (folder / "consolidated.safetensors.index.json").write_text(gone)
    assert fingerprint(folder).weight_files == 2
    for path in folder.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(Refusal, match="pytorch_model-00001"):
        fingerprint(folder)


def test_zip_checkpoints_are_known_by_their_checksums(tmp_path: Path) -> None:
    """Where nothing is sampled either: torch's files carry a checksum of every entry."""
    tensors = content()
    name = "model.embed.weight"
    hidden = tensors | {name: flip(tensors[name], places(TENSORS[name])[0] + PLACE_BYTES + 1)}
    for folder, data in (("a", tensors), ("b", tensors), ("c", hidden)):
        write(tmp_path / folder, {})
        (tmp_path / folder / "model.safetensors").unlink()
        write_zip(tmp_path / folder / "pytorch_model.bin", data)
    first, second, third = (fingerprint(tmp_path / folder).digest for folder in "abc")
    assert first == second != third


def test_old_bin_files_are_sampled(tmp_path: Path) -> None:
    for folder, last in (("a", b"0"), ("b", b"1")):
        write(tmp_path / folder, {})
        with (tmp_path / folder / "pytorch_model.bin").open("wb") as file:
            file.truncate(64 << 20)  # sparse
            file.seek(-1, os.SEEK_END)
            file.write(last)
    assert fingerprint(tmp_path / "a").digest != fingerprint(tmp_path / "b").digest


def test_dummy_weights_do_not_count(tmp_path: Path) -> None:
    with_weights, without = write(tmp_path / "a"), write(tmp_path / "b", content(1))
    assert fingerprint(with_weights, weights=False) == fingerprint(without, weights=False)
    for path in without.glob("*.safetensors"):
        path.unlink()
    assert fingerprint(with_weights, weights=False) == fingerprint(without, weights=False)
    assert fingerprint(without).weight_files == 0


def truncate(folder: Path) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def dangling(folder: Path) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    path.unlink()
    path.symlink_to(folder / "gone")


def damage(folder: Path, data: bytes) -> None:
    (folder / "model-00001-of-00002.safetensors").write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (truncate, "was not copied whole"),
        (dangling, "is a link to nothing"),
        (lambda folder: (folder / "model-00002-of-00002.safetensors").unlink(), "names model-00002-of-00002"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("[]"), "cannot be understood"),
        (lambda folder: damage(folder, b""), "header's length"),
        (lambda folder: damage(folder, b"\xff" * 64), "header's length"),
        (lambda folder: damage(folder, b"\x04" + bytes(7) + b"null"), "cannot be understood"),
        (lambda folder: damage(folder, b"\x02" + bytes(7) + b"[]"), "cannot be understood"),
        (lambda folder: damage(folder, b"\x09" + bytes(7) + b'{"a": {}}'), "cannot be understood"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, spoil: Callable[[Path], object], words: str) -> None:
    folder = write(tmp_path / "a", shards=2)
    spoil(folder)
    with pytest.raises(Refusal) as refused:
        fingerprint(folder)
    assert refused.value.code == "CheckpointUnreadable"
    assert words in refused.value.message


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="CheckpointUnreadable"):
        fingerprint(tmp_path / "gone")


def test_the_time_is_limited(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="Timeout") as refused:
        fingerprint(write(tmp_path / "a"), limit_seconds=-1)
    assert "blockSizeProbe.timeoutSeconds" in refused.value.hint


def test_files_and_folders_that_arguments_name(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text("1")
    first = content_hash(table)
    table.write_text("2")
    assert content_hash(table) != first
    assert content_hash(write(tmp_path / "draft")) == fingerprint(tmp_path / "draft").digest
