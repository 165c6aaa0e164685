"""
Builds the images that have changed and keeps their archives: `python -m images.build [name…]`.

Archives live outside the clone, in `${XDG_CACHE_HOME:-~/.cache}/qcs-images/<name>-<key>.tar`, and are linked to
`build/images/<name>.tar`. What exists under its key is not built again; an archive appears whole or not at all; two
processes never build the same image at once. Importable: `ensure`, `reference`, `IMAGES`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from images.catalogue import DEFAULT, IMAGES, ROOT, Image, build_order, context_files, key, reference
from images.runner import SIGN_OF_LIFE_SECONDS, BuildError, Report, Runner
from images.storage import Buildah, check_tools, storage

__all__ = ["DEFAULT", "IMAGES", "BuildError", "archive", "cache_home", "ensure", "key", "reference", "reference_in"]

ARCHIVES = ROOT / "build" / "images"
_LOGS = ROOT / "build" / "logs" / "images"
_KEPT_ARCHIVES = 2
_LOCK_POLL_SECONDS = 0.5


def cache_home() -> Path:
    """Folder of all archives of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qcs-images"


def archive(name: str, sources: Path = ROOT) -> Path:
    """Where the archive of an image made from these sources is or will be."""
    return cache_home() / f"{name}-{key(name, sources)}.tar"


def reference_in(path: Path) -> str:
    """The name of the image in an archive, which stays true when the sources have changed since."""
    with tarfile.open(path) as opened:
        member = opened.extractfile("index.json")
        if member is None:
            raise BuildError(f"{path} is not an OCI archive.")
        (manifest,) = json.load(member)["manifests"]
    return str(manifest["annotations"]["org.opencontainers.image.ref.name"])


def ensure(
    names: Iterable[str] = DEFAULT, links: Path = ARCHIVES, jobs: int = 1, report: Report = print
) -> dict[str, Path]:
    """
    Builds what is missing and links the archives; returns name → link.

    Raises BuildError: a tool is missing, a build failed (with the end of its log), or an image is unknown.
    """
    names = list(names)
    if unknown := [name for name in names if name not in IMAGES]:
        raise BuildError(f"unknown image {', '.join(unknown)}: there are {', '.join(IMAGES)}.")
    archives = {name: archive(name) for name in names}
    missing = [name for name, path in archives.items() if not path.exists()]
    runner = Runner(report)
    with ended_by_signal(runner), ThreadPoolExecutor(max(1, jobs)) as pool:
        for level in build_order(missing):
            try:
                archives |= dict(zip(level, pool.map(lambda name: make(name, runner), level), strict=True))
            except BaseException:
                runner.stop()
                raise
    return {name: link(name, archives[name], links) for name in names}


def make(name: str, runner: Runner) -> Path:
    """
    Builds one image, whose parents exist, unless there is one; returns its archive.

    The archive is named after the sources as they were copied, so that an edit during the build does no harm.
    """
    image = IMAGES[name]
    log = _LOGS / f"{name}.log"
    work = cache_home() / "storage" / name
    with locked(cache_home() / f"{name}.lock", lambda: runner.report(f"{name}: another process builds it, waiting")):
        if (target := archive(name)).exists():
            return target
        check_tools(needs_root_file_system=image.root is not None)
        began = time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        with storage(work, runner, name, log) as buildah:
            context = work / "context"
            stage(image, context)
            target, full_name = archive(name, context), reference(name, context)
            runner.report(f"{name}: building {full_name}")
            build(image, full_name, context, target, buildah, lambda tar: install_debian(image, tar, runner, log))
        seconds, size = time.monotonic() - began, target.stat().st_size
        notes = {"reference": full_name, "seconds": round(seconds, 1), "archive_bytes": size}
        target.with_suffix(".json").write_text(json.dumps(notes) + "\n")
        runner.report(f"{name}: built in {seconds:.0f} s, archive {size / 1e6:.0f} MB")
        prune(name, target)
    return target


def build(
    image: Image, full_name: str, context: Path, target: Path, buildah: Buildah, install: Callable[[Path], None]
) -> None:
    """Builds an image from copied sources and writes its archive."""
    if image.root:
        install(context / "root.tar")
    for parent in dict.fromkeys(image.parents.values()):
        buildah.load(archive(parent))
    arguments = {argument: reference(parent) for argument, parent in image.parents.items()}
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        buildah.build(context, image.containerfile, full_name, partial, arguments)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def stage(image: Image, context: Path) -> None:
    """Copies the image's sources, and nothing else, to a build context."""
    for source in context_files(image):
        destination = context / source.relative_to(ROOT)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, destination)
        destination.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)


def install_debian(image: Image, target: Path, runner: Runner, log: Path) -> None:
    """Installs Debian into a tar file, without manuals, translations and what names this machine or its mirror."""
    if image.root is None:
        raise ValueError(f"{image.name} has no root file system")
    # fmt: off
    command = ["mmdebstrap", "--variant=essential", f"--include={','.join(image.root.packages)}",
               "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
               *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("man", "locale", "doc", "info")),
               "--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=force-unsafe-io",
               '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname" "$1/etc/apt/sources.list"',
               image.root.suite, str(target)]
    # fmt: on
    runner.run(image.name, command, log, {**os.environ, "TMPDIR": str(target.parent)})


def link(name: str, source: Path, folder: Path) -> Path:
    """Puts the archive where the repository's own programs look for it, without a copy."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.tar"
    fresh = folder / f".{name}.tar.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    try:
        os.link(source, fresh)
    except OSError:  # another file system
        fresh.symlink_to(source)
    fresh.replace(target)
    # rename() of two links to the same file does nothing and leaves both
    fresh.unlink(missing_ok=True)
    return target


def prune(name: str, current: Path) -> None:
    """Removes old archives of the image, but for the newest other one: another clone may be at another revision."""
    others = [path for path in current.parent.glob(f"{name}-*.tar") if path.stem.rpartition("-")[0] == name]
    others = sorted((path for path in others if path != current), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_KEPT_ARCHIVES - 1 :]:
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds a lock that ends with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        spoke = 0.0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting and time.monotonic() - spoke >= SIGN_OF_LIFE_SECONDS:
                    spoke = time.monotonic()
                    waiting()
                time.sleep(_LOCK_POLL_SECONDS)
            else:
                break
        yield


@contextlib.contextmanager
def ended_by_signal(runner: Runner) -> Iterator[None]:
    """Ends the running commands, and so unwinds the builds, when the process is told to end (main thread only)."""

    def stop(number: int, frame: FrameType | None) -> None:
        runner.stop()

    try:
        former = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    except ValueError:  # not the main thread
        former = {}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def listing() -> Iterator[str]:
    """A line for each image: name, reference, size of the archive, seconds it took."""
    for name in IMAGES:
        notes = archive(name).with_suffix(".json")
        built = json.loads(notes.read_text()) if archive(name).exists() and notes.exists() else None
        state = f"{built['archive_bytes'] / 1e6:8.1f} MB {built['seconds']:7.1f} s" if built else "not built"
        yield f"{name:12} {reference(name):48} {state}"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m images.build", description="Builds the images that have changed.")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"of {', '.join(IMAGES)}; default: {', '.join(DEFAULT)}"
    )
    parser.add_argument(
        "--push-archives", type=Path, default=ARCHIVES, metavar="FOLDER", help="where <name>.tar is linked"
    )
    parser.add_argument("--jobs", "-j", type=int, default=1, help="images built beside each other")
    parser.add_argument("--list", action="store_true", help="show what there is and build nothing")
    arguments = parser.parse_args(argv)

    def report(line: str) -> None:
        print(line, flush=True)

    if arguments.list:
        print("\n".join(listing()))
        return 0
    try:
        archives = ensure(arguments.names or DEFAULT, arguments.push_archives.resolve(), arguments.jobs, report)
    except BuildError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    for name, path in archives.items():
        report(f"{name}: {reference_in(path)} in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
