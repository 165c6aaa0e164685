"""The command line as a user runs it; nothing here needs built binaries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import localkube

ROOT = Path(localkube.__file__).parents[1]


def run(*arguments, home):
    environment = os.environ | {"LOCALKUBE_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "localkube", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


MODULES = "kubernetes, etcd, containerd, kwok, kubernetes-1.36, helm, promtool, gitops-judge"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("kubeconfig", "There is no cluster localkube (there is: none). Bring it up with `up`."),
        ("up --version 1.2", "--version 1.2 is not available. Choose one of 1.34, 1.36, 1.37."),
        ("up --kwok -1", "--kwok -1 is negative. Give 0 or more."),
        ("up --gpus 1", "--gpus shows GPUs on the real node. Add --node; simulated nodes have 8 each."),
        (
            "down --name A_B",
            "--name 'A_B' is not usable. Use 1 to 30 lower-case letters, digits and dashes, such as 'a-1'.",
        ),
        (
            "build --module x",
            f"--module x is not known. Choose from {MODULES}.",
        ),
        ("prereqs --for fun", "--for fun is not known. Choose from control-plane, node, images."),
    ],
)
def test_bad_input_is_one_sentence_with_the_remedy(arguments, said, tmp_path):
    ran = run(*arguments.split(), home=tmp_path / "h")
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"localkube: {said}\n")
    assert not (tmp_path / "h").exists()


def test_nothing_to_show_or_end(tmp_path):
    assert run("status", home=tmp_path / "h").stdout == "no clusters\n"
    assert run("status", "--json", home=tmp_path / "h").stdout == "[]\n"
    ended = run("down", home=tmp_path / "h")
    assert (ended.returncode, ended.stderr) == (0, "there is no cluster localkube\n")


def test_an_unknown_option_is_explained(tmp_path):
    ran = run("up", "--nodes", "3", home=tmp_path)
    assert ran.returncode == 2
    assert "--nodes" in ran.stderr
    assert "Traceback" not in ran.stderr
