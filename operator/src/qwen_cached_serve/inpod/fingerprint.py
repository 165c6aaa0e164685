"""What a checkpoint folder holds, told without reading all of it (DESIGN D7): two models at one path must differ.

Hashed are: the configuration, every other small file that is not on the neutral list, names and sizes of the weight
files (`checkpoint_files`: whatever is not known to be something else), the header of each safetensors file and, of
**every** tensor, `PLACES` places of `PLACE_BYTES` each, the first at its beginning, the last at its end, the rest
spread evenly. A fine-tune changes every value of the tensors it touches and is seen; so is a merged adapter, whichever
tensors it went into. A change of single values that lie outside all places is not seen: 4 KiB of each tensor are
compared, not the tensor. Entries of zip files (`.bin`, `.pt`, `.npz`) carry a checksum of the whole content, which
counts too, so nothing hides there.

Symbolic links (the layout of the hub's cache) are followed: only what is read counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checkpoint_files import TORCH, CheckpointFile, files_of
from .refusal import Refusal

PLACES = 4
PLACE_BYTES = 1024
_BLIND_STEP_BYTES = 4 << 20
"""One place in so many bytes where a file's parts are not known (old `.bin`, `.gguf`, `.tensors`)."""
_SMALL_BYTES = 16 << 20
_HEADER_LIMIT_BYTES = 100_000_000  # safetensors' own limit
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_UNNAMED_KEYS = frozenset({"_name_or_path", "transformers_version"})
"""Keys of config.json that say how it was written, not what it describes."""
_THREADS = 16
"""Places are read one by one, and from network storage each costs a round trip."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hash, and how much was looked at."""

    digest: str
    """32 hexadecimal digits."""
    weight_files: int
    tensors: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class _Span:
    """One part of a file, in bytes."""

    name: str
    offset: int
    length: int


@dataclass(slots=True)
class _Counter:
    deadline: float
    tensors: int = 0
    bytes_read: int = 0

    def check(self, where: Path) -> None:
        if time.monotonic() > self.deadline:
            raise Refusal(
                "Timeout",
                f"the checkpoint's fingerprint did not end in time; it had come to {where.name}",
                "Raise spec.blockSizeProbe.timeoutSeconds, or look at the speed of the model's volume.",
            )


def fingerprint(folder: Path, *, weights: bool = True, limit_seconds: float = 600.0) -> Fingerprint:
    """Fingerprint a checkpoint folder; without `weights` (random ones are made from the seed) only what describes it.

    A folder without weights has a fingerprint too: that the engine will not load it is the engine's to say.

    Raises:
        Refusal: CheckpointUnreadable (a file that cannot be read, is shorter than its header says or is named by the
            index and not there), Timeout.

    """
    counter = _Counter(time.monotonic() + limit_seconds)
    files = [file for file in _files(folder) if weights or not file.weights]
    digest = hashlib.sha256(b"qcs checkpoint 1\n")
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="qcs-fingerprint") as pool:
        for file in files:
            counter.check(file.path)
            with _readable(file.path):
                line = _weights(file.path, pool, counter) if file.weights else _small(file.path, counter)
            digest.update(f"{json.dumps(file.path.name)} {line}\n".encode())
    if weights:
        _check_index(folder, {file.path.name for file in files})
    count = sum(file.weights for file in files)
    return Fingerprint(digest.hexdigest()[:32], count, counter.tensors, counter.bytes_read)


def content_hash(path: Path) -> str:
    """Hash of a file or checkpoint folder that an argument names, by the same rules.

    Raises:
        Refusal: as `fingerprint`.

    """
    if path.is_dir():
        return fingerprint(path).digest
    with _readable(path):
        return hashlib.sha256(_blind(path, _Counter(float("inf")))).hexdigest()[:32]


def _files(folder: Path) -> list[CheckpointFile]:
    with _readable(folder):
        files = list(files_of(folder))
    for file in files:
        if file.known and not file.path.exists():
            raise _unreadable(file.path, "is a link to nothing: a download was broken off, or only links were copied")
    return files


def _small(path: Path, counter: _Counter) -> str:
    if path.stat().st_size > _SMALL_BYTES:
        return hashlib.sha256(_blind(path, counter)).hexdigest()
    content = path.read_bytes()
    counter.bytes_read += len(content)
    if path.suffix == ".json":
        with contextlib.suppress(ValueError, RecursionError):
            content = _canonical_json(json.loads(content), top_level=path.name == "config.json")
    return hashlib.sha256(content).hexdigest()


def _canonical_json(data: Any, *, top_level: bool) -> bytes:
    if top_level and isinstance(data, dict):
        data = {key: value for key, value in data.items() if key not in _UNNAMED_KEYS}
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")


def _weights(path: Path, pool: ThreadPoolExecutor, counter: _Counter) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode("ascii"))
    parts = _parts(path, size)
    if parts is None:
        digest.update(_blind(path, counter))
        return digest.hexdigest()
    header, spans = parts
    digest.update(header)
    counter.tensors += len(spans)
    counter.bytes_read += len(header)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            # Reading ahead would fetch 128 KiB for each KiB.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for batch in _batches(spans):
            counter.check(path)
            for sampled in pool.map(lambda span: _sample(descriptor, span), batch):
                counter.bytes_read += len(sampled)
                digest.update(sampled)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def _parts(path: Path, size: int) -> tuple[bytes, list[_Span]] | None:
    """What a weight file says of itself, and its parts; None where nothing is known of its inside."""
    if path.suffix == ".safetensors":
        return _safetensors(path, size)
    if not zipfile.is_zipfile(path):
        return None
    try:
        return _zip_entries(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        if path.suffix in TORCH:
            raise _unreadable(path, f"is a damaged zip file ({error})") from error
        return None  # It only looked like one.


def _batches(spans: Sequence[_Span], size: int = 1024) -> Iterator[Sequence[_Span]]:
    for start in range(0, len(spans), size):
        yield spans[start : start + size]


def _safetensors(path: Path, size: int) -> tuple[bytes, list[_Span]]:
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(size - 8, _HEADER_LIMIT_BYTES):
            raise _unreadable(path, "is not a safetensors file: its header's length makes no sense")
        header = file.read(length)
    try:
        entries = json.loads(header)
        begin = 8 + length
        spans = [
            _Span(str(name), begin + int(entry["data_offsets"][0]), _length(entry))
            for name, entry in entries.items()
            if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise _unreadable(path, f"has a header that cannot be understood ({type(error).__name__})") from error
    end = max((span.offset + span.length for span in spans), default=begin)
    if end > size or any(span.length < 0 or span.offset < begin for span in spans):
        raise _unreadable(path, f"has {size} bytes, its header speaks of {end}: it was not copied whole")
    return header, sorted(spans, key=lambda span: (span.offset, span.name))


def _length(entry: Any) -> int:
    start, stop = entry["data_offsets"]
    return int(stop) - int(start)


def _zip_entries(path: Path) -> tuple[bytes, list[_Span]]:
    """Entries of a zip (what torch and numpy save): names, sizes, checksums of the whole content, and places."""
    with zipfile.ZipFile(path) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    lines = [f"{entry.filename} {entry.file_size} {entry.CRC:08x}" for entry in entries]
    return "\n".join(lines).encode("utf-8", "surrogateescape"), [
        _Span(entry.filename, entry.header_offset, entry.compress_size) for entry in entries if entry.compress_size
    ]


def _sample(descriptor: int, span: _Span) -> bytes:
    if span.length <= PLACES * PLACE_BYTES:
        return _read(descriptor, span.offset, span.length)
    last = span.length - PLACE_BYTES
    return b"".join(
        _read(descriptor, span.offset + place * last // (PLACES - 1), PLACE_BYTES) for place in range(PLACES)
    )


def _read(descriptor: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(descriptor, length, offset)
        if not part:
            raise OSError(5, "the file ended early")
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


def _blind(path: Path, counter: _Counter) -> bytes:
    """Size and places of a file whose parts are not known; small ones whole."""
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        if size <= _SMALL_BYTES:
            content = file.read()
            counter.bytes_read += len(content)
            return content
        count = max(64, size // _BLIND_STEP_BYTES)
        parts = [str(size).encode("ascii")]
        for place in range(count):
            if place % 256 == 0:
                counter.check(path)
            parts.append(_read(file.fileno(), place * (size - 4 * PLACE_BYTES) // (count - 1), 4 * PLACE_BYTES))
        counter.bytes_read += count * 4 * PLACE_BYTES
        return b"".join(parts)


def _check_index(folder: Path, names: set[str]) -> None:
    """Shards that the index names must be there: the engine would find out after minutes of loading.

    A repository often has the index of a second format whose files nobody has copied; it is not asked.
    """
    index = _INDEXES[0] if any(name.endswith(".safetensors") for name in names) else _INDEXES[1]
    if index not in names:
        return
    with _readable(folder / index):
        content = (folder / index).read_bytes()
    try:
        missing = sorted({str(shard) for shard in json.loads(content)["weight_map"].values()} - names)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(folder / index, f"cannot be understood ({type(error).__name__})") from error
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise _unreadable(folder / index, f"names {missing[0]}{more}, which the folder does not hold")


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror or error}") from error


def _unreadable(path: Path, what: str) -> Refusal:
    return Refusal(
        "CheckpointUnreadable",
        f"{path} {what}",
        "Copy the model's files again, and see that spec.pod.securityContext's user may read them.",
    )
