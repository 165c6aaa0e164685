"""`kubectl_complete-qcs`: what kubectl runs to complete `kubectl qcs …`.

kubectl gives the words typed so far, the last one incomplete, and expects what cobra prints: a candidate a line, with
its description behind a tab, and last a directive: `:4` = no file names beside these, `:0` = file names are welcome.
The candidates are the ones that the shells get, asked for in the same way as fish does it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys

from qwen_cached_serve.cli.main import app

_NO_FILES, _FILES = ":4", ":0"


def candidates(words: list[str]) -> list[str]:
    """Return completions of the last word, with their descriptions behind a tab."""
    before, incomplete = words[:-1], words[-1] if words else ""
    # A space at the end says that a new word begins.
    os.environ |= {
        "_QCS_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": f"{shlex.join(['qcs', *before])} {shlex.quote(incomplete) if incomplete else ''}",
    }
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        app(prog_name="qcs")
    return [line for line in printed.getvalue().splitlines() if line]


def main() -> None:
    """Answer kubectl."""
    found = candidates(sys.argv[1:])
    print("\n".join([*found, _NO_FILES if found else _FILES]))


if __name__ == "__main__":
    main()
