"""
Which images there are, what each is made of and what it is called: a table, and keys hashed from the sources.

An image's key covers everything its content follows from: recipe, sources, build arguments, the keys of the images it
is made from, the processor architecture. Python packages are in it through the hashes in their requirement files.
"""

from __future__ import annotations

import hashlib
import platform
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE_VERSION = "1"
"""Raised when this program changes what it makes from the same sources."""
_KEY_LENGTH = 16
_DEBIAN_SUITE = "bookworm"


@dataclass(frozen=True)
class RootFileSystem:
    """A Debian installed by mmdebstrap from the machine's own package sources."""

    packages: tuple[str, ...]
    suite: str = _DEBIAN_SUITE


@dataclass(frozen=True)
class Image:
    """One image that can be built here."""

    name: str
    repository: str
    context: tuple[str, ...]
    """Files and folders of the repository that the Containerfile copies; the first is the Containerfile."""
    tag: str | None = None
    """None: the project's version and the key."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """Build argument → name of the image that fills it."""
    optional: tuple[str, ...] = ()
    """Context that may be missing."""
    root: RootFileSystem | None = None

    @property
    def containerfile(self) -> str:
        """Path of the recipe in the repository."""
        return self.context[0]


# usr-is-merged keeps the usrmerge package, and with it 45 MB of Perl, out.
_RUN_TIME = ("usr-is-merged", "python3", "ca-certificates", "libstdc++6", "libnuma1")
_BASE = {"BASE": "base", "BUILDER": "builder"}

IMAGES: dict[str, Image] = {
    image.name: image
    for image in (
        Image("base", "localhost/qcs-base", ("images/base/Containerfile",), "1", root=RootFileSystem(_RUN_TIME)),
        Image(
            "builder",
            "localhost/qcs-builder",
            ("images/builder/Containerfile", "images/tools.txt"),
            "1",
            root=RootFileSystem((*_RUN_TIME, "python3-venv", "gcc", "libc6-dev")),
        ),
        Image(
            "pause",
            "localhost/pause",
            ("images/pause/Containerfile", "images/pause/pause.c"),
            "1",
            parents={"BUILDER": "builder"},
        ),
        Image(
            "model-tiny",
            "localhost/qcs-model-tiny",
            ("images/model-tiny/Containerfile", "images/model-tiny/tiny-chain", "images/model-tiny/tiny-chain-352"),
            "1",
        ),
        Image(
            "operator",
            "localhost/qcs-operator",
            (
                "images/operator/Containerfile",
                "images/operator/sbom.py",
                "images/tools.txt",
                "requirements/runtime.txt",
                "pyproject.toml",
                "operator",
            ),
            parents=_BASE,
            optional=("LICENSE",),
        ),
        Image(
            "engine-cpu",
            "localhost/qcs-engine-cpu",
            (
                "images/engine-cpu/Containerfile",
                "images/engine-cpu/requirements.txt",
                "images/engine-cpu/torch.txt",
                "images/engine-cpu/slim.py",
                "images/tools.txt",
            ),
            "0.32.0-0.5.6",
            parents=_BASE,
        ),
    )
}
DEFAULT = ("pause", "model-tiny", "operator", "engine-cpu")
"""What a cluster needs; base and builder are made on the way."""


def reference(name: str, sources: Path = ROOT) -> str:
    """
    The name under which a cluster finds the image, such as `localhost/qcs-engine-cpu:0.32.0-0.5.6`.

    `sources` is the repository or a copy of the image's own files. Raises KeyError for an image that is not in IMAGES.
    """
    image = IMAGES[name]
    tag = image.tag
    if tag is None:
        version = tomllib.loads((sources / "pyproject.toml").read_text())["project"]["version"]
        tag = f"{version}-{key(name, sources)}"
    return f"{image.repository}:{tag}"


def key(name: str, sources: Path = ROOT) -> str:
    """The image's content key; `sources` as in `reference`. Raises FileNotFoundError when a source is missing."""
    image = IMAGES[name]
    digest = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            digest.update(len(data).to_bytes(8, "big") + data)

    add(RECIPE_VERSION, image.name, platform.machine())
    if image.root:
        add(image.root.suite, *image.root.packages)
    for argument, parent in sorted(image.parents.items()):
        add(argument, key(parent))
    for path in context_files(image, sources):
        executable = "x" if path.stat().st_mode & 0o111 else "-"
        add(path.relative_to(sources).as_posix(), executable, path.read_bytes())
    return digest.hexdigest()[:_KEY_LENGTH]


def context_files(image: Image, sources: Path = ROOT) -> Iterator[Path]:
    """The image's source files in a stable order, without what Python leaves behind."""
    for entry in (*image.context, *image.optional):
        path = sources / entry
        if path.is_dir():
            files = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc"]
            yield from sorted(file for file in files if "__pycache__" not in file.parts)
        elif path.exists() or entry not in image.optional:
            yield path


def build_order(names: Iterable[str]) -> list[list[str]]:
    """
    The images and those they are made from, in levels: all of one level can be built beside each other.

    Raises KeyError for an image that is not in IMAGES.
    """
    depth: dict[str, int] = {}

    def visit(name: str) -> int:
        if name not in depth:
            depth[name] = max((visit(parent) + 1 for parent in IMAGES[name].parents.values()), default=0)
        return depth[name]

    for name in names:
        visit(name)
    levels: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, level in depth.items():
        levels[level].append(name)
    return levels
