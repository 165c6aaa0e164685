"""Where the demo runs: a local cluster made from source, or the cluster of the current kubeconfig context."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from demo.narrate import Narrator
from demo.shell import ROOT, DemoError

LOCAL_NAME = "demo"


@dataclass(frozen=True)
class Images:
    """Image references the demo's resources use."""

    operator: str
    engine_cpu: str
    model_tiny: str


@dataclass(frozen=True)
class Place:
    """A cluster that is up and has the images."""

    kubeconfig: str
    images: Images
    simulated_nodes: bool
    """Nodes with simulated GPUs are there (label `type=kwok`)."""


def existing(kubeconfig: str | None) -> Place:
    """
    The current context; its nodes must be able to pull the three images, whose names come from the environment.

    Raises:
        DemoError: no kubeconfig.

    """
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not Path(path.split(":")[0]).is_file():
        raise DemoError(f"no kubeconfig at {path}: set KUBECONFIG, or run the demo on a local cluster (CLUSTER=local)")
    images = Images(
        operator=os.environ.get("QCS_DEMO_OPERATOR_IMAGE", ""),
        engine_cpu=os.environ.get("QCS_DEMO_ENGINE_IMAGE", ""),
        model_tiny=os.environ.get("QCS_DEMO_MODEL_IMAGE", ""),
    )
    built = images if all(asdict(images).values()) else local_images()
    filled = {name: given or getattr(built, name) for name, given in asdict(images).items()}
    return Place(path, Images(**filled), simulated_nodes=os.environ.get("QCS_DEMO_SIMULATED_NODES") == "true")


def local_images() -> Images:
    """References of the images whose archives lie in build/images, as the archives themselves say.

    Raises:
        DemoError: an archive is missing.

    """
    from images.build import BuildError, reference_in

    archives = (ROOT / "build" / "images" / f"{name}.tar" for name in ("operator", "engine-cpu", "model-tiny"))
    try:
        return Images(*(reference_in(archive) for archive in archives))
    except (BuildError, OSError) as error:
        raise DemoError(f"no image archives: run `make images`, or name images (docs/demo.md): {error}") from error


def local(narrator: Narrator) -> Place:
    """
    Build what is missing (binaries and images beside each other), start the cluster, load the images.

    Raises:
        DemoError: a build or the cluster failed; the message holds the last log lines.

    """
    from tools.background import BackgroundBuild

    if os.geteuid() != 0:
        raise DemoError("a real node needs root: run as root, or use a cluster you have (make demo CLUSTER=existing)")
    _localkube("prereqs", "--install")
    logs = ROOT / "build" / "logs"
    binaries = BackgroundBuild("binaries", [[sys.executable, "-m", "localkube", "build"]], logs / "build-localkube.log")
    images = BackgroundBuild("images", [[sys.executable, "-m", "images.build"]], logs / "build-images.log")
    try:
        narrator.say("building Kubernetes from Go modules and the images beside it; both are kept for the next time")
        for build in (binaries, images):
            build.wait()
    except RuntimeError as error:
        raise DemoError(str(error)) from error
    finally:
        binaries.stop()
        images.stop()
    _localkube("up", "--name", LOCAL_NAME, "--node", "--kwok", "2", "--gpus", "8")
    kubeconfig = _localkube("kubeconfig", "--name", LOCAL_NAME)
    for name in ("operator", "engine-cpu", "model-tiny"):
        narrator.say(f"loading image {name} into the node")
        _localkube("load-image", "--name", LOCAL_NAME, str(ROOT / "build" / "images" / f"{name}.tar"))
    return Place(kubeconfig, local_images(), simulated_nodes=True)


def remove_local() -> None:
    """Take the demo's cluster down; nothing of it stays."""
    _localkube("down", "--name", LOCAL_NAME)


def _localkube(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "localkube", *args], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoError(f"localkube {args[0]} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout.strip()
