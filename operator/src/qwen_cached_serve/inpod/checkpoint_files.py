"""Which files of a checkpoint's folder count for its fingerprint (DESIGN D7).

Loaders are many (tensorizer's `.tensors`, numpy's `.npz`, plugins' own), so a file counts unless it is known not to:
one whose name says nothing is taken for weights. A wrong miss costs a cold cache, a wrong hit another model's answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .neutral import load_neutral

TORCH = (".bin", ".pt", ".pth")
_WEIGHTS = (".safetensors", ".gguf", *TORCH)
_DESCRIPTIONS = (".json", ".py", ".model", ".jinja", ".txt", ".yaml", ".toml")
_TEXT_BYTES = 16 << 20
"""Files without a suffix (NOTICE, Makefile) are texts for people up to this size."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file that an engine may read."""

    path: Path
    weights: bool
    """Weights are looked at in places, everything else is read."""
    known: bool
    """Its suffix says what it is; what is wrong with another file is the engine's to say."""


def files_of(folder: Path) -> Iterator[CheckpointFile]:
    """Every file that counts, by name; links to nothing are among them where the suffix is known.

    Raises:
        OSError: the folder cannot be read.

    """
    neutral = load_neutral()
    for path in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if path.name.startswith(".") or path.name in neutral.checkpoint_files:
            continue
        weights = path.suffix in _WEIGHTS
        if weights or path.suffix in _DESCRIPTIONS:
            if path.is_file() or (path.is_symlink() and not path.exists()):
                yield CheckpointFile(path, weights, known=True)
        elif path.suffix not in neutral.checkpoint_suffixes and _may_hold_weights(path):
            yield CheckpointFile(path, weights=True, known=False)


def _may_hold_weights(path: Path) -> bool:
    # What may not be read here may not be read by the engine either, which runs as the same user.
    return path.is_file() and os.access(path, os.R_OK) and (path.suffix != "" or path.stat().st_size > _TEXT_BYTES)
