"""Environments that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import environments


def test_it_is_made_once(tmp_path: Path) -> None:
    target, calls = tmp_path / "cache" / "0.33.0-abc", []

    def make(folder: Path) -> None:
        calls.append(folder)
        folder.mkdir()

    assert not environments.is_made(target)
    assert environments.ensure(target, make) == target / "bin" / "python"
    assert environments.ensure(target, make) == target / "bin" / "python"
    assert calls == [target]
    assert environments.is_made(target)


def test_one_that_was_broken_off_is_made_anew(tmp_path: Path) -> None:
    target = tmp_path / "0.33.0-abc"

    def breaks(folder: Path) -> None:
        (folder / "lib").mkdir(parents=True)
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space"):
        environments.ensure(target, breaks)
    assert not environments.is_made(target)
    environments.ensure(target, Path.mkdir)
    assert not (target / "lib").exists()
