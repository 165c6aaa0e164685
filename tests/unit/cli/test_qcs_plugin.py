"""`kubectl qcs`: the installed scripts, and completion as kubectl asks for it."""

import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def run(program, *arguments):
    return subprocess.run([BIN / program, *arguments], capture_output=True, text=True, check=True).stdout


def test_kubectl_finds_the_plugin(monkeypatch):
    monkeypatch.setenv("PATH", str(BIN), prepend=":")
    assert run("kubectl", "qcs", "--help").startswith("Usage: kubectl qcs [OPTIONS] COMMAND")
    # As the completion of kubectl's own shells asks.
    assert "restart\t" in run("kubectl", "__complete", "qcs", "rest")


@pytest.mark.parametrize(
    ("words", "candidate", "directive"),
    [
        (["rest"], "restart", ":4"),
        (["status", "--all"], "--all-namespaces", ":4"),
        (["plan", "--output", ""], "json", ":4"),
        (["plan", "a b", "--tp"], "--tp", ":4"),
        (["render", ""], None, ":0"),
    ],
)
def test_completion_answers_as_kubectl_expects(words, candidate, directive):
    *found, last = run("kubectl_complete-qcs", *words).splitlines()
    assert last == directive
    assert (candidate is None) == (not found)
    assert candidate is None or candidate in [line.partition("\t")[0] for line in found]


def test_shells_get_a_script():
    done = subprocess.run([BIN / "qcs"], env={"_QCS_COMPLETE": "source_bash"}, capture_output=True, text=True)
    assert "complete -o default" in done.stdout
