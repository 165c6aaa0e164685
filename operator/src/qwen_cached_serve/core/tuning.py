"""What the operator adjusts by itself (DESIGN D12): a pure decision from the engine's own words.

One remedy so far: vLLM cannot capture its graphs when it is asked for more sequences than the pool has Mamba state
blocks, and says how many it has (`causes.engine`, facts/vllm.md §4). That number depends on the weights, the GPU and
what else uses its memory, so nobody knows it before a start; with the engine's default (1024 on large GPUs) a 27B model
does not start. The number becomes `--max-num-seqs`. Every other class only explains.

A tuning belongs to one key of a revision: another spec begins without one. It is stored in the revision's data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qwen_cached_serve.core.diagnose import Diagnosis
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.inpod.facts import ServeSettings

MAX_NUM_SEQS = "maxNumSeqs"
LIMIT = 3
"""Adjustments for one spec. The engine names the exact number, so one is the rule; a GPU that something else uses, too,
may have less room the next time."""
_CLASS = "MaxNumSeqsTooLarge"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One remedy that was applied."""

    name: str
    """Field of spec.engine.vllm that it stands in for."""
    value: int
    before: int
    """What the engine had been asked for."""
    code: str
    """Class of the failure that it answers."""

    @property
    def sentence(self) -> str:
        """What was done and why."""
        return (
            f"Lowered from {self.before} to {self.value}: the engine had state blocks for {self.value} sequences and "
            f"did not start ({self.code})."
        )


@dataclass(frozen=True, slots=True)
class Declined:
    """A failure that has a remedy, and why it is not applied."""

    why: str
    """Half a sentence."""


Tuning = tuple[Adjustment, ...]
"""What was adjusted for one spec, oldest first."""


def decide(failures: Iterable[Diagnosis], resolved: Resolved, tuning: Tuning) -> Adjustment | Declined | None:
    """Choose the remedy for the failures of one revision's pods; `tuning` is what that revision has already.

    None when no failure has one. The number only ever falls, and the pods share it, so the smallest one counts.
    """
    answers = [one.numbers for one in failures if one.code == _CLASS and "availableBlocks" in one.numbers]
    if not answers:
        return None
    numbers = min(answers, key=lambda found: found["availableBlocks"])
    room, asked = numbers["availableBlocks"], numbers.get("maxNumSeqs", 0)
    if why := _declined(resolved, tuning, room):
        return Declined(why)
    return Adjustment(MAX_NUM_SEQS, room, asked, _CLASS)


def _declined(resolved: Resolved, tuning: Tuning, room: int) -> str:
    engine, former = resolved.settings.engine, value(tuning)
    if resolved.auto_tune != "Enabled":
        return "spec.engine.autoTune is Disabled"
    if engine.max_num_seqs is not None:
        return "spec.engine.vllm.maxNumSeqs is set, and a number of your own stays as it is"
    if any(_sets_sequences(argument) for argument in engine.unsupported_args):
        return "spec.unsupported.engineArgs sets it"
    if room < 1:
        return "the engine has no state block at all, so no number helps"
    if former is not None and room >= former:
        return f"it was lowered to {former} already, which the engine did not take up"
    if len(tuning) >= LIMIT:
        return f"it was lowered {LIMIT} times for this spec already"
    return ""


def _sets_sequences(argument: str) -> bool:
    """Whether an argument may be --max-num-seqs in one of the spellings that vLLM's parser takes."""
    flag = argument.partition("=")[0].replace("_", "-")
    return flag.startswith("--max-num-s") and "--max-num-seqs".startswith(flag)


def value(tuning: Sequence[Adjustment]) -> int | None:
    """Return the number of sequences that a tuning leaves, None when it has none."""
    return tuning[-1].value if tuning else None


def tuned(resolved: Resolved, tuning: Tuning) -> Resolved:
    """Return the resource as it is with a tuning."""
    settings: ServeSettings = resolved.settings
    engine = dataclasses.replace(settings.engine, tuned_max_num_seqs=value(tuning))
    return dataclasses.replace(resolved, settings=dataclasses.replace(settings, engine=engine))


def as_data(tuning: Tuning) -> dict[str, Any]:
    """Return a tuning as it is stored and hashed; empty when nothing was adjusted."""
    return {"adjustments": [dataclasses.asdict(one) for one in tuning]} if tuning else {}


def from_data(data: Mapping[str, Any]) -> Tuning:
    """Read what `as_data` made.

    Raises:
        ValueError: it is something else.

    """
    try:
        return tuple(
            Adjustment(str(one["name"]), int(one["value"]), int(one["before"]), str(one["code"]))
            for one in data.get("adjustments", ())
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no tuning: {data!r}") from error


def tuning_status(tuning: Tuning) -> list[dict[str, Any]]:
    """Return `status.tuning`: the latest adjustment of each name."""
    latest = {one.name: one for one in tuning}
    return [{"name": one.name, "value": str(one.value), "reason": one.sentence} for one in latest.values()]
