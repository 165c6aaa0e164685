"""The builder: what it runs, keeps, links and says. One image is really built where buildah can run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from images import build, storage
from images import runner as running
from images.catalogue import ROOT, Image, key
from images.runner import BuildError, Runner

needs_buildah = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("buildah") is None, reason="building an image needs root and buildah"
)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_LOGS", tmp_path / "logs")
    return tmp_path / "cache" / "qcs-images"


def existing_archive(cache: Path, name: str, content: bytes = b"an archive") -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{name}-{key(name)}.tar"
    path.write_bytes(content)
    return path


def test_what_exists_is_linked_and_not_built(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "check_tools", lambda **_: pytest.fail("nothing is to be built"))
    archive = existing_archive(cache, "pause")
    lines: list[str] = []
    for _ in range(2):
        assert build.ensure(["pause"], tmp_path / "links", report=lines.append) == {
            "pause": tmp_path / "links/pause.tar"
        }
    assert (tmp_path / "links/pause.tar").samefile(archive)
    assert [path.name for path in (tmp_path / "links").iterdir()] == ["pause.tar"]
    assert lines == []


def test_a_stale_link_is_replaced(cache: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "pause.tar").write_bytes(b"old")
    existing_archive(cache, "pause", b"new")
    build.ensure(["pause"], links)
    assert (links / "pause.tar").read_bytes() == b"new"


def test_across_file_systems_the_link_is_symbolic(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cross_device(*_: object) -> None:
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr(os, "link", cross_device)
    archive = existing_archive(cache, "pause")
    link = build.ensure(["pause"], tmp_path / "links")["pause"]
    assert link.is_symlink()
    assert link.resolve() == archive.resolve()


def test_an_unknown_image_names_those_there_are() -> None:
    with pytest.raises(BuildError, match=r"unknown image engin.*engine-cpu"):
        build.ensure(["engin"])


def test_missing_tools_and_rights_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match=r"apt-get install buildah mmdebstrap"):
        storage.check_tools(needs_root_file_system=True)
    with pytest.raises(BuildError, match=r"apt-get install buildah`"):
        storage.check_tools(needs_root_file_system=False)
    monkeypatch.setattr(storage.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(storage.os, "geteuid", lambda: 1000)
    with pytest.raises(BuildError, match="sudo"):
        storage.check_tools(needs_root_file_system=False)


def test_old_archives_go_but_for_the_newest_other_one(cache: Path) -> None:
    current = existing_archive(cache, "engine-cpu")
    for age, name in enumerate(("engine-cpu-aa", "engine-cpu-bb", "engine-cpu-cc", "engine-dd"), start=1):
        for suffix in (".tar", ".json"):
            (cache / f"{name}{suffix}").write_bytes(b"")
            os.utime(cache / f"{name}{suffix}", (1_000_000_000 - age, 1_000_000_000 - age))
    build.prune("engine-cpu", current)
    left = sorted(path.name for path in cache.iterdir())
    assert left == sorted([current.name, "engine-cpu-aa.json", "engine-cpu-aa.tar", "engine-dd.json", "engine-dd.tar"])


def test_a_failed_command_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    program = "import sys; print(*range(100), sep='\\n'); sys.exit('no space left')"
    with pytest.raises(BuildError) as error:
        Runner(print).run("x", [sys.executable, "-c", program], log)
    message = str(error.value)
    assert message.splitlines()[0] == f"x: {sys.executable} ended with 1; the end of {log}:"
    assert "no space left" in message
    assert "\n99" in message
    assert "\n59" not in message


def test_a_long_command_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SIGN_OF_LIFE_SECONDS", 0.05)
    monkeypatch.setattr(running, "_POLL_SECONDS", 0.01)
    lines: list[str] = []
    enough = tmp_path / "enough"

    def report(line: str) -> None:
        lines.append(line)
        if "at work" in line:
            enough.touch()

    program = (
        f"import os, time\nprint('at work', flush=True)\nwhile not os.path.exists({str(enough)!r}): time.sleep(0.01)"
    )
    Runner(report).run("x", [sys.executable, "-c", program], tmp_path / "x.log")
    assert lines[-1].startswith("x: ")
    assert lines[-1].endswith("at work")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_stop_ends_what_runs_and_refuses_the_rest(tmp_path: Path) -> None:
    runner, started, errors = Runner(print), tmp_path / "started", []
    program = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(600)"

    def run() -> None:
        try:
            runner.run("x", [sys.executable, "-c", program], tmp_path / "x.log")
        except BuildError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(started.exists, "the command did not start")
    runner.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert len(errors) == 1
    with pytest.raises(BuildError, match="stopped"):
        runner.run("y", ["true"], tmp_path / "y.log")


def test_a_signal_ends_the_running_command_and_the_former_handler_comes_back(tmp_path: Path) -> None:
    former = signal.getsignal(signal.SIGTERM)
    started = tmp_path / "started"
    program = f"import os, pathlib, signal, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(600)"

    def send() -> None:
        wait_for(started.exists, "the command did not start")
        os.kill(os.getpid(), signal.SIGTERM)

    runner = Runner(print)
    sender = threading.Thread(target=send)
    with build.ended_by_signal(runner):
        sender.start()
        with pytest.raises(BuildError, match=r"ended with -15"):
            runner.run("x", [sys.executable, "-c", program], tmp_path / "x.log")
    sender.join(30)
    assert signal.getsignal(signal.SIGTERM) is former


def test_the_second_builder_waits_and_says_so(tmp_path: Path) -> None:
    lock, said = tmp_path / "x.lock", threading.Event()
    entered: list[float] = []

    def second() -> None:
        with build.locked(lock, said.set):
            entered.append(time.monotonic())

    with build.locked(lock):
        thread = threading.Thread(target=second)
        thread.start()
        assert said.wait(30)
        assert not entered
        released = time.monotonic()
    thread.join(30)
    assert entered[0] >= released


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom images.build import locked\n"
        "with locked(Path(sys.argv[1])):\n    os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.lock")], cwd=ROOT, check=False)
    with build.locked(tmp_path / "x.lock", lambda: pytest.fail("the lock of a dead process")):
        pass


@needs_buildah
def test_a_real_image(cache: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    link = build.ensure(["model-tiny"], tmp_path / "links", report=lines.append)["model-tiny"]
    with tarfile.open(link) as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
        (manifest,) = index["manifests"]
        assert manifest["annotations"]["org.opencontainers.image.ref.name"] == "localhost/qcs-model-tiny:1"
        digest = manifest["digest"].replace(":", "/")
        layers = json.load(archive.extractfile(f"blobs/{digest}"))["layers"]  # type: ignore[arg-type]
    assert build.reference_in(link) == "localhost/qcs-model-tiny:1"
    assert layers
    assert {layer["mediaType"].rpartition(".")[2] for layer in layers} == {"tar"}  # not compressed
    assert lines[0] == "model-tiny: building localhost/qcs-model-tiny:1"
    notes = json.loads((cache / f"model-tiny-{key('model-tiny')}.json").read_text())
    assert notes["archive_bytes"] == link.stat().st_size
    # nothing else stays: no storage, no half archive
    assert sorted(path.suffix for path in cache.iterdir() if path.is_file()) == [".json", ".lock", ".tar"]
    assert not list((cache / "storage").iterdir())
    assert not storage.mounts_below(cache)


@needs_buildah
def test_a_failed_build_leaves_no_archive_and_no_storage(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = build.stage

    def stage_a_broken_recipe(image: Image, context: Path) -> None:
        stage(image, context)
        (context / image.containerfile).write_text("FROM scratch\nCOPY nowhere /\n")

    monkeypatch.setattr(build, "stage", stage_a_broken_recipe)
    with pytest.raises(BuildError, match="nowhere"):
        build.ensure(["model-tiny"], tmp_path / "links", report=lambda line: None)
    assert not list(cache.glob("*.tar"))
    assert not list(cache.glob("*.partial"))
    assert not list((cache / "storage").iterdir())
    assert not (tmp_path / "links").exists()
