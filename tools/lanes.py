"""Tiers beside each other: each lane is a process of its own with its own log, shown as a whole when the lane ends.

Tiers wait a lot (for pods, for imports of one process on one core), so that two of them take little more than one.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

from tools.background import last_line

_SIGN_OF_LIFE_SECONDS = 30.0
_STOP_SECONDS = 180.0
"""A lane takes its clusters down when it is told to stop."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one stage of a lane ended."""

    name: str
    result: str
    """passed, FAILED or skipped."""
    seconds: float


def write_outcomes(file: Path, outcomes: Iterable[Outcome]) -> None:
    """Write what a lane's `outcomes` reads."""
    file.write_text(json.dumps([astuple(outcome) for outcome in outcomes]), encoding="utf-8")


@dataclass(slots=True)
class Lane:
    """A running command that writes its outcomes as JSON, a list of [name, result, seconds], to a file it is given."""

    stages: tuple[str, ...]
    log: Path
    outcomes_file: Path
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def start(cls, stages: Sequence[str], command: Sequence[str], folder: Path) -> Lane:
        """Start `command` with `--outcomes FILE`; log and file lie in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        name = "-".join(stages)
        log, outcomes = folder / f"lane-{name}.log", folder / f"lane-{name}.json"
        outcomes.unlink(missing_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--outcomes", str(outcomes)],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # `stop` tells it to end; a terminal's Ctrl-C would tell it twice
            )
        return cls(tuple(stages), log, outcomes, process)

    def outcomes(self) -> list[Outcome]:
        """What it wrote; a stage that is missing in it has failed, and so has a lane that failed without a word."""
        try:
            written = [Outcome(*entry) for entry in json.loads(self.outcomes_file.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):
            written = []
        told = {outcome.name for outcome in written}
        seconds = time.monotonic() - self.began
        written += [Outcome(stage, "FAILED", seconds) for stage in self.stages if stage not in told]
        if self.process.poll() and all(outcome.result != "FAILED" for outcome in written):
            written.append(Outcome(f"{'-'.join(self.stages)}: exit {self.process.returncode}", "FAILED", seconds))
        return written


def finish(lanes: Iterable[Lane]) -> list[Outcome]:
    """Wait for all, showing each one's log when it ends; their outcomes, in the order of the lanes."""
    lanes = list(lanes)
    running, said = list(lanes), time.monotonic()
    while running:
        for lane in [lane for lane in running if lane.process.poll() is not None]:
            running.remove(lane)
            seconds = time.monotonic() - lane.began
            print(f"\n##### {' and '.join(lane.stages)}, {seconds:.0f} s", flush=True)
            print(lane.log.read_text(encoding="utf-8", errors="replace"), flush=True)
        if time.monotonic() - said >= _SIGN_OF_LIFE_SECONDS:
            said = time.monotonic()
            for lane in running:
                print(f"… {' and '.join(lane.stages)} ({said - lane.began:.0f} s): {last_line(lane.log)}", flush=True)
        if running:
            time.sleep(0.2)
    return [outcome for lane in lanes for outcome in lane.outcomes()]


def stop(lanes: Iterable[Lane]) -> None:
    """End what still runs, and give it time to clean up."""
    running = [lane for lane in lanes if lane.process.poll() is None]
    for lane in running:
        lane.process.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for lane in running:
        try:
            lane.process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            lane.process.kill()
            lane.process.wait()
