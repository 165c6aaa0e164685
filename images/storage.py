"""buildah with a storage of its own: nothing else on the machine is touched, and nothing stays when a build is over."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from images.runner import BuildError, Runner

# Packages come from where this machine's installers take them from; none of it ends up in an image (build stage only).
_PASSED_ARGUMENTS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "TORCH")
_CA_BUNDLE_IN_IMAGE = "/etc/ssl/certs/ca-certificates.crt"
_UV_CACHE_IN_IMAGE = "/var/cache/uv"


class Buildah:
    """One throw-away storage."""

    def __init__(self, folder: Path, runner: Runner, label: str, log: Path) -> None:
        self._folder, self._runner, self._label, self._log = folder, runner, label, log
        self._driver = "overlay"

    def _command(self, verb: str, *arguments: str) -> list[str]:
        storage = ["--root", f"{self._folder}/root", "--runroot", f"{self._folder}/run"]
        policy = [] if verb in {"info", "run"} else ["--signature-policy", f"{self._folder}/policy.json"]
        return ["buildah", *storage, "--storage-driver", self._driver, verb, *policy, *arguments]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BUILDAH_", "STORAGE_"))}
        return kept | {"TMPDIR": f"{self._folder}/tmp", "BUILDAH_ISOLATION": "chroot"}

    def open(self) -> None:
        """Makes the storage; takes the slower vfs driver where overlay cannot be mounted."""
        self.close()
        (self._folder / "tmp").mkdir(parents=True)
        (self._folder / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        probe = subprocess.run(
            self._command("info"), env=self._environment(), capture_output=True, text=True, check=False
        )
        if probe.returncode:
            self._runner.report(f"{self._label}: no overlay storage ({probe.stderr.strip()[-200:]}), using vfs")
            self._driver = "vfs"

    def close(self) -> None:
        """Unmounts and removes whatever a build, also a killed one, left in the folder."""
        if not self._folder.exists():
            return
        for mount in sorted(mounts_below(self._folder), reverse=True):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
        shutil.rmtree(self._folder)

    def load(self, archive: Path) -> None:
        """Takes an image out of its archive."""
        self._run("pull", "--quiet", f"oci-archive:{archive}")

    def build(
        self, context: Path, containerfile: str, reference: str, archive: Path, arguments: Mapping[str, str]
    ) -> None:
        """
        Builds an image from a folder straight into an archive that `ctr image import` reads.

        The archive is not compressed and the image does not enter the storage: containerd unpacks it anyway, and a
        commit with a compressing push afterwards took longer than the installation of the packages.
        """
        given = {name: os.environ[name] for name in _PASSED_ARGUMENTS if os.environ.get(name)} | dict(arguments)
        options = [item for name, value in sorted(given.items()) for item in ("--build-arg", f"{name}={value}")]
        for source, target in self._mounts():
            options += ["--volume", f"{source}:{target}"]
        options += ["--file", f"{context}/{containerfile}", "--tag", f"oci-archive:{archive}:{reference}"]
        self._run("bud", "--layers=false", "--pull=never", "--format", "oci", *options, str(context))

    def run(self, reference: str, user: str, command: Sequence[str], volumes: Mapping[Path, str]) -> None:
        """Runs a command in an image of the storage, in a chroot and as that user."""
        options = [item for source, target in volumes.items() for item in ("--volume", f"{source}:{target}:ro")]
        self._run("from", "--pull=never", "--name", "check", reference)
        self._run("run", "--isolation", "chroot", "--user", user, *options, "check", "--", *command)

    def _mounts(self) -> Iterator[tuple[str, str]]:
        bundle = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or _CA_BUNDLE_IN_IMAGE
        if Path(bundle).exists():
            yield str(Path(bundle).resolve()), f"{_CA_BUNDLE_IN_IMAGE}:ro"
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache = Path(os.environ.get("UV_CACHE_DIR") or caches / "uv").resolve()
        cache.mkdir(parents=True, exist_ok=True)
        yield str(cache), _UV_CACHE_IN_IMAGE

    def _run(self, verb: str, *arguments: str) -> None:
        self._runner.run(self._label, self._command(verb, *arguments), self._log, self._environment())


@contextlib.contextmanager
def storage(folder: Path, runner: Runner, label: str, log: Path) -> Iterator[Buildah]:
    """A storage for one build."""
    buildah = Buildah(folder, runner, label, log)
    buildah.open()
    try:
        yield buildah
    finally:
        buildah.close()


def mounts_below(folder: Path) -> list[str]:
    """Mount points inside a folder."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(folder)]


def check_tools(needs_root_file_system: bool) -> None:
    """Raises BuildError with one sentence when this machine cannot build images."""
    wanted = ["buildah", "mmdebstrap"] if needs_root_file_system else ["buildah"]
    if missing := [tool for tool in wanted if shutil.which(tool) is None]:
        raise BuildError(f"{' and '.join(missing)} not found: `apt-get install {' '.join(missing)}` (Debian, Ubuntu).")
    if os.geteuid() != 0:
        raise BuildError(
            "images are built as root (chroot, mounts): run this with sudo, or use docker (images/README.md)."
        )
