"""Lanes of `make test`: outcomes, logs and the end of real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.unit.inpod.pod_folder import wait_for
from tools import lanes
from tools.background import last_line
from tools.lanes import Lane

WRITES = """
import pathlib, sys
print("the tests say something", flush=True)
pathlib.Path(sys.argv[-1]).write_text({outcomes!r})
sys.exit({status})
"""

MEETS = """
import pathlib, sys
open(sys.argv[1], sys.argv[2]).close()  # a pipe's side: waits for the other one
pathlib.Path(sys.argv[-1]).write_text('[["' + sys.argv[2] + '", "passed", 1.5]]')
"""

CLEANS_UP = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1]).touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(3600)
"""


def lane(folder: Path, stages: tuple[str, ...], outcomes: object, status: int = 0) -> Lane:
    script = WRITES.format(outcomes=json.dumps(outcomes), status=status)
    return Lane.start(stages, [sys.executable, "-c", script], folder)


def told(running: list[Lane]) -> list[tuple[str, str]]:
    return [(outcome.name, outcome.result) for outcome in lanes.finish(running)]


def test_lanes_run_beside_each_other_and_are_told_in_their_order(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    both = [Lane.start((side,), [sys.executable, "-c", MEETS, str(pipe), side], tmp_path) for side in ("r", "w")]
    assert told(both) == [("r", "passed"), ("w", "passed")]


def test_a_lanes_log_is_shown_when_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lanes.finish([lane(tmp_path, ("node", "engine"), [["node", "passed", 1.0], ["engine", "passed", 2.0]])])
    assert "##### node and engine, " in (shown := capsys.readouterr().out)
    assert "the tests say something" in shown


def test_a_stage_without_outcome_has_failed(tmp_path: Path) -> None:
    assert told([lane(tmp_path, ("node", "engine"), [["node", "passed", 1.0]], status=1)]) == [
        ("node", "passed"),
        ("engine", "FAILED"),
    ]
    assert told([lane(tmp_path, ("unit",), "no list", status=0)]) == [("unit", "FAILED")]


def test_outcomes_of_a_former_run_do_not_count(tmp_path: Path) -> None:
    assert told([lane(tmp_path, ("unit",), [["unit", "passed", 1.0]])]) == [("unit", "passed")]
    dies = Lane.start(("unit",), [sys.executable, "-c", "raise SystemExit(1)"], tmp_path)
    assert told([dies]) == [("unit", "FAILED")]


def test_a_lane_that_fails_without_saying_which_stage_has_failed(tmp_path: Path) -> None:
    assert told([lane(tmp_path, ("unit",), [["unit", "passed", 1.0]], status=3)]) == [
        ("unit", "passed"),
        ("unit: exit 3", "FAILED"),
    ]


def test_the_last_line_is_the_sign_of_life(tmp_path: Path) -> None:
    running = lane(tmp_path, ("unit",), [["unit", "passed", 1.0]])
    lanes.finish([running])
    assert last_line(running.log) == "the tests say something"
    running.log.write_text("")
    assert last_line(running.log) == "starting"


def test_a_stopped_lane_takes_down_what_it_has_up(tmp_path: Path) -> None:
    cleaned = tmp_path / "cleaned"
    running = Lane.start(("node",), [sys.executable, "-c", CLEANS_UP, str(cleaned)], tmp_path)
    wait_for(lambda: last_line(running.log) == "ready")
    lanes.stop([running])
    assert cleaned.exists()
    assert running.process.returncode == 128 + signal.SIGTERM
