"""
Builds the pinned Go binaries once and finds them again.

Cache: ``<cache>/bin/<module>-<key>/``; key = go.mod + go.sum + flags + Go release + platform. A folder appears by
rename, so one that exists is whole. Two processes never build the same module at once. An interrupted build is resumed
by Go's own build cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from localkube import paths
from localkube.errors import LocalKubeError
from localkube.modules import Module, modules_for

Report = Callable[[str], None]

_LINE_EVERY_S = 15.0
_MANIFEST = "build.json"
_NO_GO = "Install Go 1.26.7 or newer and put its bin folder on PATH."


def bin_home() -> Path:
    """Folder that holds one folder per built module."""
    return paths.cache_home() / "bin"


def go_version(module: Module) -> str | None:
    """The Go release that builds the module (its go.mod may ask for another toolchain), None without Go."""
    go = shutil.which("go")
    if go is None:
        return None
    ran = subprocess.run([go, "env", "GOVERSION"], cwd=module.folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise LocalKubeError(f"`go env GOVERSION` fails in {module.folder}: {ran.stderr.strip()}", _NO_GO)
    return ran.stdout.strip()


def target(module: Module, go: str) -> Path:
    """Folder the module's binaries have or will have when built by that Go release."""
    text = "\0".join((module.source_hash(), go, platform.system(), platform.machine()))
    return bin_home() / f"{module.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def built(module: Module) -> Path | None:
    """
    Folder with the module's binaries, None when they are still to be built.

    Without Go on the machine, binaries of the same sources built by any Go release are taken (a restored CI cache).
    """
    go = go_version(module)
    if go is not None:
        folder = target(module, go)
        return folder if (folder / _MANIFEST).exists() else None
    for manifest in sorted(bin_home().glob(f"{module.name}-*/{_MANIFEST}")):
        if json.loads(manifest.read_text()).get("source") == module.source_hash():
            return manifest.parent
    return None


def assets() -> Path | None:
    """The folder named by KUBEBUILDER_ASSETS (kube-apiserver, etcd, kubectl of the user's choice)."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise LocalKubeError(
            f"KUBEBUILDER_ASSETS={folder} is not a folder.", "Correct the variable, or unset it to use localkube's own."
        )
    return Path(folder)


def find_binaries(names: Sequence[str], version: str, report: Report) -> dict[str, Path]:
    """Paths of the named binaries: those of KUBEBUILDER_ASSETS first, the rest built when not built yet."""
    found: dict[str, Path] = {}
    if (folder := assets()) is not None:
        found = {name: folder / name for name in names if os.access(folder / name, os.X_OK)}
    rest = [name for name in names if name not in found]
    for module in modules_for(rest, version):
        where = build(module, report)
        found |= {name: where / name for name in module.binaries if name in rest}
    return found


def build(module: Module, report: Report) -> Path:
    """Build the module unless it is there; returns the folder with its binaries. Raises LocalKubeError."""
    if (folder := built(module)) is not None:
        return folder
    go = go_version(module)
    if go is None:
        raise LocalKubeError(f"{', '.join(module.binaries)} must be built and Go is not installed.", _NO_GO)
    bin_home().mkdir(parents=True, exist_ok=True)
    with _exclusive(bin_home() / f".{module.name}.lock", module, report):
        folder = target(module, go)
        if (folder / _MANIFEST).exists():
            return folder
        for left in bin_home().glob(f".{module.name}.tmp-*"):  # of a build that was killed: ours alone under the lock
            shutil.rmtree(left, ignore_errors=True)
        made = bin_home() / f".{module.name}.tmp-{os.getpid()}"
        made.mkdir()
        try:
            seconds = _compile(module, made, report)
            for theirs, ours in module.renamed:
                (made / theirs).rename(made / ours)
            missing = [name for name in module.binaries if not (made / name).exists()]
            if missing:
                raise LocalKubeError(f"Building {module.name} yielded no {', '.join(missing)}.")
            facts = {"module": module.name, "source": module.source_hash(), "go": go, "seconds": round(seconds, 1)}
            (made / _MANIFEST).write_text(json.dumps(facts, indent=1) + "\n")
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        report(f"{module.name}: built in {seconds:.0f} s -> {folder}")
        return folder


def source_folder(module: Module, dependency: str) -> Path:
    """Folder with the sources of a module's dependency, downloaded when missing; go.sum vouches for them."""
    go = shutil.which("go")
    if go is None:
        raise LocalKubeError(f"The files of {dependency} must be downloaded and Go is not installed.", _NO_GO)
    ran = subprocess.run(
        [go, "mod", "download", "-json", dependency],
        cwd=module.folder,
        env=os.environ | {"GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise LocalKubeError(
            f"Downloading {dependency} failed: {ran.stdout.strip()} {ran.stderr.strip()}",
            "It needs the Go module proxy (GOPROXY, HTTPS_PROXY).",
        )
    return Path(json.loads(ran.stdout)["Dir"])


def _compile(module: Module, into: Path, report: Report) -> float:
    log = into / "go.log"
    environment = os.environ | {"CGO_ENABLED": "0", "GOBIN": str(into), "GOFLAGS": "-mod=readonly"}
    started = time.monotonic()
    with log.open("wb") as out:
        running = subprocess.Popen(
            ["go", "install", "-v", *module.flags(), "tool"], cwd=module.folder, env=environment, stdout=out, stderr=out
        )
        try:
            _watch(running, module, log, started, report)
        except BaseException:  # Ctrl-C included: go must not go on building behind the user's back
            running.terminate()
            running.wait()
            raise
    lines = log.read_text(errors="replace").splitlines()
    if running.returncode != 0:
        said = "\n".join(f"  | {line}" for line in lines[-15:])
        raise LocalKubeError(
            f"Building {module.name} failed:\n{said}\n",
            "A missing dependency needs the Go module proxy (GOPROXY, HTTPS_PROXY); a second try resumes.",
        )
    log.unlink()
    return time.monotonic() - started


def _watch(running: subprocess.Popen[bytes], module: Module, log: Path, started: float, report: Report) -> None:
    live = sys.stderr.isatty()
    every = 1.0 if live else _LINE_EVERY_S
    while True:
        try:
            running.wait(every)
        except subprocess.TimeoutExpired:
            line = progress_line(module, time.monotonic() - started, log.read_text(errors="replace"))
            if live:
                sys.stderr.write(f"\r\033[K{line[:110]}")
                sys.stderr.flush()
            else:
                report(line)
            continue
        if live:
            sys.stderr.write("\r\033[K")
        return


def progress_line(module: Module, seconds: float, log: str) -> str:
    """What is being built, for how long, and the step Go reported last."""
    lines = log.splitlines()
    compiled = [line for line in lines if line and not line.startswith("go: ") and " " not in line]
    if compiled:
        step = f"{len(compiled)} packages compiled, now {compiled[-1]}"
    elif lines:
        step = lines[-1].removeprefix("go: ")
    else:
        step = "reading the build cache or linking"
    return f"building {module.name} ({', '.join(module.binaries)}): {int(seconds)} s, {step}"


@contextlib.contextmanager
def _exclusive(lock: Path, module: Module, report: Report) -> Iterator[None]:
    """Hold the module's lock; another holder is named while we wait for it."""
    with lock.open("a+") as handle:
        waited = 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited % _LINE_EVERY_S == 0:
                    report(f"{module.name}: another process builds it, waiting ({int(waited)} s)")
                time.sleep(0.5)
                waited += 0.5
        yield
