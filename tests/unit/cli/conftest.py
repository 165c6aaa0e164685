"""The command line, run in this process."""

import io
import sys

import pytest

from qwen_cached_serve.cli import main as cli


@pytest.fixture
def run_qcs(monkeypatch, capsys):
    """Run `qcs`; returns exit status, stdout, stderr."""

    def run(*arguments, stdin=None):
        monkeypatch.setattr(sys, "argv", ["qcs", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run


@pytest.fixture
def qcs(run_qcs):
    """Run `qcs` with these arguments; the tests of one command add its name."""
    return run_qcs
