"""Builds a real one-file Go module: its own ``tool``, no dependency, about two seconds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localkube import build, modules, paths
from localkube.errors import LocalKubeError

HELLO = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'
GO = shutil.which("go")
needs_go = pytest.mark.skipif(GO is None and os.environ.get("CI") != "true", reason="Go is not installed")


@pytest.fixture
def hello(tmp_path, monkeypatch):
    folder = tmp_path / "modules" / "hello"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module localkube.test/hello\n\ngo 1.24\n\ntool localkube.test/hello\n")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text(HELLO)
    monkeypatch.setattr(paths, "MODULES", tmp_path / "modules")
    if GO is not None:  # the compiled standard library is not built once more for the test
        real = subprocess.run([GO, "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
        monkeypatch.setenv("GOCACHE", real)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return modules.Module("hello", ("greet",), renamed=(("hello", "greet"),))


@needs_go
def test_builds_once_and_finds_it_again_even_without_go(hello, monkeypatch):
    said = []
    left = build.bin_home() / ".hello.tmp-1"
    left.mkdir(parents=True)
    folder = build.build(hello, said.append)
    assert subprocess.run([folder / "greet"], capture_output=True, text=True, check=True).stdout == "hello\n"
    assert not left.exists(), "what a killed build left is removed"
    assert sorted(p.name for p in folder.iterdir()) == ["build.json", "greet"]
    assert json.loads((folder / "build.json").read_text())["source"] == hello.source_hash()
    assert said[-1].startswith("hello: built in ")
    lines = len(said)
    made = (folder / "greet").stat()
    assert build.build(hello, said.append) == folder
    assert (folder / "greet").stat() == made
    assert len(said) == lines

    monkeypatch.setenv("PATH", "/nowhere")
    assert build.built(hello) == folder
    assert build.build(hello, said.append) == folder
    (hello.folder / "go.sum").write_text("changed\n")
    with pytest.raises(LocalKubeError, match=r"greet must be built and Go is not installed\. Install Go"):
        build.build(hello, said.append)


@needs_go
def test_a_failing_build_shows_the_compilers_words_and_leaves_nothing(hello):
    (hello.folder / "main.go").write_text(HELLO.replace("fmt.Println", "fmt.Prinln"))
    with pytest.raises(LocalKubeError, match=r"Building hello failed:(.|\n)*undefined: fmt\.Prinln"):
        build.build(hello, print)
    assert [p.name for p in build.bin_home().iterdir()] == [".hello.lock"]


@needs_go
def test_two_processes_build_it_once(hello, tmp_path):
    code = (
        "import sys; from pathlib import Path; from localkube import build, modules, paths\n"
        f"paths.MODULES = Path({str(paths.MODULES)!r})\n"
        "build.build(modules.Module('hello', ('greet',), renamed=(('hello', 'greet'),)), print)\n"
    )
    root = Path(build.__file__).parents[1]
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = "".join(p.communicate(timeout=120)[0] for p in both)
    assert [p.returncode for p in both] == [0, 0]
    assert said.count("built in") == 1, said


def test_kubebuilder_assets_come_first_and_must_exist(tmp_path, monkeypatch):
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    (tmp_path / "etcd").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert build.find_binaries(["etcd"], "1.36", print) == {"etcd": tmp_path / "etcd"}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "missing"))
    with pytest.raises(LocalKubeError, match=r"KUBEBUILDER_ASSETS=.*missing is not a folder"):
        build.find_binaries(["etcd"], "1.36", print)


@pytest.mark.parametrize(
    ("log", "step"),
    [
        ("", "reading the build cache or linking"),
        ("go: downloading k8s.io/api v0.36.3\n", "downloading k8s.io/api v0.36.3"),
        (
            "go: downloading x v1\nk8s.io/api/core/v1\nk8s.io/api/apps/v1\n",
            "2 packages compiled, now k8s.io/api/apps/v1",
        ),
    ],
)
def test_progress_says_what_for_how_long_and_which_step(log, step):
    line = build.progress_line(modules.ETCD, 75.9, log)
    assert line == f"building etcd (etcd): 75 s, {step}"


@needs_go
def test_sources_that_cannot_be_downloaded_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "empty"))
    name = "github.com/prometheus-operator/prometheus-operator"
    with pytest.raises(LocalKubeError, match=rf"Downloading {name} failed: (.|\n)*It needs the Go module proxy"):
        build.source_folder(modules.PROMETHEUS_OPERATOR, name)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LocalKubeError, match=r"Go is not installed\. Install Go"):
        build.source_folder(modules.PROMETHEUS_OPERATOR, name)
