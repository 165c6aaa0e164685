"""Every `python -m` of the repository tells what it does when asked with --help, and does nothing."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INSIDE_OTHERS = {"tools.gpu_matrix.worker"}
"""Run by a program in another interpreter, not by people."""


def commands():
    for folder in ("tools", "localkube", "images", "demo", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not (path.parent / "__init__.py").exists():
                continue  # copied into an image
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
            if name not in INSIDE_OTHERS and '__name__ == "__main__"' in path.read_text(encoding="utf-8"):
                yield name


def test_they_are_found():
    assert {"tools.tiers", "tools.transcript", "localkube", "localkube.pin", "images.build", "demo"} <= set(commands())


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", list(commands()))
def test_help_only_tells(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(name, run_name="__main__", alter_sys=False)
    assert not end.value.code
    assert "usage:" in capsys.readouterr().out.lower()
