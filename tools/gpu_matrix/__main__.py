"""`python -m tools.gpu_matrix [--release 0.33.0] [--generation SM90]`: ask vLLM, write docs/gpu-matrix.{json,md}.

Answers are kept in the cache, by environment and sources of the worker, so that a run goes on where one stopped;
`--fresh` forgets them. A release whose environment cannot be made or whose process fails is written as `notRun`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.gpu_matrix import environment
from tools.gpu_matrix.cells import GENERATIONS, RELEASES, Cell, Generation, cells_of
from tools.gpu_matrix.result import Row, not_run, write_json
from tools.gpu_matrix.table import write_table

_SOURCES = ("worker.py", "models.py", "faked_cuda.py", "faked_nvml.c", "no_driver.c")


def answers_file(release: str, gpu: Generation) -> Path:
    """Where the answers of a release on a generation are kept: by pins and by what puts the questions."""
    digest = hashlib.sha256(b"".join((environment.HERE / name).read_bytes() for name in _SOURCES))
    folder = environment.cache() / "answers" / f"{environment.home(release).name}-{digest.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{gpu.name}.jsonl"


def kept_answers(file: Path) -> dict[Cell, Row]:
    """Read answers of earlier runs; a line cut off by an interruption counts as not asked."""
    found: dict[Cell, Row] = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            row.pop("seconds", None)
            found[Cell.from_row(row)] = row
    return found


def missing_cells(release: str, gpu: Generation) -> list[Cell]:
    """Questions without an answer of vLLM; what could not be run is asked again."""
    answers = kept_answers(answers_file(release, gpu))
    return [cell for cell in cells_of(release, gpu.name) if answers.get(cell, {}).get("source") != "vllm"]


def ask(release: str, gpus: Sequence[Generation], *, isolated: bool = False) -> str:
    """Ask a release what is not known yet; returns why something may be missing, or an empty string."""
    if isolated:
        return "; ".join(filter(None, [ask(release, [gpu]) for gpu in gpus]))
    jobs = [
        {
            "generation": gpu.name,
            "cells": [cell.row() for cell in missing],
            "models": str(environment.cache() / "models"),
            "out": str(answers_file(release, gpu)),
        }
        for gpu in gpus
        if (missing := missing_cells(release, gpu))
    ]
    if not jobs:
        return ""
    print(f"vLLM {release}", flush=True)
    try:
        command = ["nice", "-n", "19", str(environment.ensure(release)), "-m", "tools.gpu_matrix.worker"]
        subprocess.run(command, input=json.dumps(jobs), text=True, check=True, env=dict(environment.variables(release)))
    except subprocess.CalledProcessError as error:
        # Of the worker or of an installer; `nice` in front of the worker says nothing.
        what = "the worker" if "tools.gpu_matrix.worker" in error.cmd else Path(error.cmd[0]).name
        return f"{what} ended with status {error.returncode}"
    except RuntimeError as error:
        return str(error)
    return ""


def rows_of(release: str, gpu: Generation, reason: str) -> list[Row]:
    """Return a row for each question: the kept answer, or that it was not run and why."""
    answers = kept_answers(answers_file(release, gpu))
    return [answers.get(cell) or not_run(cell, reason or "not asked yet") for cell in cells_of(release, gpu.name)]


def main() -> int:
    """Entry point; 1 when a question has no answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="append", choices=RELEASES, help="ask only this one (repeatable)")
    parser.add_argument("--generation", action="append", choices=[gpu.name for gpu in GENERATIONS])
    parser.add_argument("--fresh", action="store_true", help="forget kept answers first")
    parser.add_argument("--isolated", action="store_true", help="import vLLM anew for each generation (slow)")
    parser.add_argument("--merge-only", action="store_true", help="write what is known, ask nothing")
    options = parser.parse_args()
    gpus = [gpu for gpu in GENERATIONS if not options.generation or gpu.name in options.generation]
    reasons: dict[str, str] = {}
    for release in options.release or RELEASES:
        if options.fresh:
            for gpu in gpus:
                answers_file(release, gpu).unlink(missing_ok=True)
        if not options.merge_only:
            reasons[release] = ask(release, gpus, isolated=options.isolated)
    rows = [
        row for release in RELEASES for gpu in GENERATIONS for row in rows_of(release, gpu, reasons.get(release, ""))
    ]
    write_json(rows)
    write_table(rows)
    unanswered = sum(row["source"] != "vllm" for row in rows)
    refused = sum(bool(row.get("refused")) for row in rows)
    print(f"{len(rows)} questions: {len(rows) - unanswered} answered by vLLM ({refused} refused), {unanswered} not run")
    return 1 if unanswered else 0


if __name__ == "__main__":
    sys.exit(main())
