"""Why an engine, cache server or probe ended, told from a termination message or a log.

The cause usually stands far above the last line, in another process, so wrappers and shutdown noise count only when
nothing else is found (B26). Nothing is guessed: words that no rule knows are class `Unknown`, with the last error line
quoted. Rules and classes are in `causes`; what a line is, in `loglines`.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qwen_cached_serve.core.causes.program import REFUSAL
from qwen_cached_serve.core.causes.rule import Rule, Tier
from qwen_cached_serve.core.failures import FAILURES, OBSERVATIONS, RULES
from qwen_cached_serve.core.loglines import CUT_BYTES, Line, failure_streams, lives, read_lines
from qwen_cached_serve.core.redaction import redact_text

_EXCERPT_CHARACTERS = 240
_FIELDS_OF_CONTAINERS = re.compile(r"\bspec\.engine\.(?=(?:resources|extraArgs|env)\b)")
_FIELD = re.compile(r"\bspec\.[a-z][\w.]*")
_NOISE = re.compile(
    r"Traceback \(most recent|resource_tracker|leaked|^During handling of|^The above exception|"
    r"WorkerProc hit an exception|^\s*For further information visit"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,100}?(?:Error|Exception|Interrupt|Exit|Fault)\b(?:: |$)")
_ERROR_WORD = re.compile(r"\b(?:error|fatal|panic|exception|segmentation fault|bus error|aborted)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One classified failure."""

    code: str
    """CamelCase, usable as a condition reason; a key of `failures.FAILURES`, or a newer pod's own code."""
    message: str
    """What happened, in a sentence."""
    hint: str
    """What to do, naming the field of the resource where there is one."""
    needs_a_person: bool = True
    """False for what heals by itself or by an object that appears (Secret, volume, GPU)."""
    numbers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Figures read from the text, such as `blockSize` or `maxNumSeqs`; sizes in bytes."""
    excerpt: str = ""
    """The line that decided, shortened, secrets masked."""
    field: str = ""
    """Path in the resource that is to be changed; empty where no field helps."""
    line: int = 0
    """Number of that line in the text, from 1; 0 where there is none."""

    @property
    def sentence(self) -> str:
        """Message, field and hint as one text for a condition."""
        where = f"Field: {self.field}." if self.field and self.field not in f"{self.message} {self.hint}" else ""
        return " ".join(part for part in (self.message, where, self.hint) if part)


def classified(
    code: str, message: str = "", *, remedy: str = "", path: str = "", numbers: Mapping[str, int] | None = None
) -> Diagnosis:
    """Make a diagnosis of a class of the catalogue; what is not given is the class's own."""
    known = FAILURES[code]
    return Diagnosis(
        code=code,
        message=message or known.meaning,
        hint=remedy or known.remedy,
        needs_a_person=not known.heals,
        numbers=numbers or {},
        field=path or known.field,
    )


def refused(code: str, message: str, hint: str) -> Diagnosis:
    """Make a diagnosis of a coded refusal of the pod's scripts; codes of newer scripts need a person."""
    known = FAILURES.get(code)
    text = redact_text(message.strip())
    # A hint of its own knows better than the class which field it is about.
    named = _FIELD.search(f"{hint} {message}")
    path = named[0].rstrip(".") if named else known.field if known and not hint else ""
    return Diagnosis(
        code=code,
        message=text if not text or text[-1] in ".!?…" else f"{text}.",
        hint=redact_text(hint) or (known.remedy if known else ""),
        needs_a_person=not (known and known.heals),
        field=path,
    )


def diagnose_log(text: str, container: str = "engine") -> Diagnosis | None:
    """Classify a log or the tail of one; None when no line of it is an error.

    The last life that tells of a failure counts; in it the first cause, else the first symptom, else the last error
    line (`Unknown`), else a wrapper. `container` chooses between fields that both programs have.
    """
    all_lines = read_lines(text)
    cut = len(text.encode("utf-8", "replace")) >= CUT_BYTES
    for lines in reversed(lives(all_lines)):
        found = _of_life(lines, cut and lines[:1] == all_lines[:1])
        if found:
            return _for_container(found, container)
    return None


def observe_log(text: str) -> Diagnosis | None:
    """Find what keeps a program that runs from doing its work, in a log that tells of no failure."""
    hits = _hits([[line for line in read_lines(text) if line.text.strip()]], OBSERVATIONS)
    return _diagnosis(hits[0]) if hits else None


def decisive(text: str, limit: int = 1500) -> str:
    """Return the part of a log that decides, at most `limit` characters, secrets masked.

    `diagnose_log` says of it what it says of the whole, so nothing else has to be kept.
    """
    found = diagnose_log(text)
    if found is None or not found.line:
        return ""
    lines = read_lines(text)
    process = lines[found.line - 1].process
    # A message may go on over some lines of the same process.
    own = [line.text for line in lines[found.line - 1 :] if line.process == process][:12]
    for count in range(1, len(own) + 1):
        part = redact_text("\n".join(own[:count]))[:limit]
        again = diagnose_log(part)
        if again and (again.code, again.numbers, again.message) == (found.code, found.numbers, found.message):
            return part
    return f"ERROR: {found.excerpt}"


def _of_life(lines: list[Line], cut: bool) -> Diagnosis | None:
    streams = failure_streams(lines)
    if found := _refusal(streams):
        return found
    hits = _certain(_hits(streams, RULES), lines, cut)
    best = _diagnosis(hits[0]) if hits else None
    if best and hits[0].rule.tier < Tier.WRAPPER:
        return best
    return _unknown(streams) or best


@dataclass(frozen=True, slots=True)
class _Hit:
    rule: Rule
    place: int
    """Of the rule in the table."""
    match: re.Match[str]
    line: Line


def _hits(streams: Iterable[list[Line]], rules: Sequence[Rule]) -> list[_Hit]:
    """All rules that match, the most telling first, then the earliest; of those in one line the first in the table."""
    found: list[_Hit] = []
    for stream in streams:
        text = "\n".join(line.text for line in stream)
        starts = [0, *itertools.accumulate(len(line.text) + 1 for line in stream)]
        for place, rule in enumerate(rules):
            found.extend(
                _Hit(rule, place, match, stream[bisect.bisect_right(starts, match.start()) - 1])
                for match in rule.pattern.finditer(text)
            )
    return sorted(found, key=lambda hit: (hit.rule.tier, hit.line.number, hit.place))


def _certain(hits: list[_Hit], lines: list[Line], cut: bool) -> list[_Hit]:
    """Leave out what the first line says if it may be the rest of a line, of a warning for example.

    In a text that the kubelet has cut it is left out; in a short one it counts unless other lines say as much.
    """
    first = lines[0]
    if len(lines) == 1 or first.headed or not hits or hits[0].line is not first:
        return hits
    others = [hit for hit in hits if hit.line is not first]
    return others if cut or (others and others[0].rule.tier <= hits[0].rule.tier) else hits


def _refusal(streams: Iterable[list[Line]]) -> Diagnosis | None:
    for stream in streams:
        for line in stream:
            if match := REFUSAL.match(line.text):
                made = refused(match["code"], match["words"], "")
                return _at(made, line)
    return None


def _diagnosis(hit: _Hit) -> Diagnosis:
    rule, match = hit.rule, hit.match
    words = defaultdict(str, {name: (text or "").strip() for name, text in match.groupdict().items()})
    message = redact_text(rule.message.format_map(words)).rstrip(" :")
    path = rule.field if isinstance(rule.field, str) else rule.field(match)
    made = classified(
        rule.code,
        message if not message or message[-1] in ".!?" else f"{message}.",
        remedy=rule.remedy.format_map(words),
        path=path,
        numbers=rule.numbers(match),
    )
    return _at(made, hit.line)


def _unknown(streams: Iterable[list[Line]]) -> Diagnosis | None:
    """Quote the last error line, exceptions before lines that only say "error"."""
    wrappers = [rule for rule in RULES if rule.tier is Tier.WRAPPER]
    best: tuple[int, int] | None = None
    quoted: Line | None = None
    for stream in streams:
        for line in stream:
            if _NOISE.search(line.text) or any(rule.pattern.search(line.text) for rule in wrappers):
                continue
            rank = (
                2 if _EXCEPTION.match(line.text) else 1 if line.level or _ERROR_WORD.search(line.text) else 0,
                line.number,
            )
            if rank[0] and (best is None or rank > best):
                best, quoted = rank, line
    if quoted is None:
        return None
    excerpt = _excerpt(quoted)
    return _at(classified("Unknown", f"The cause is not known; the last error line is: {excerpt}"), quoted)


def _at(made: Diagnosis, line: Line) -> Diagnosis:
    return dataclasses.replace(made, excerpt=_excerpt(line), line=line.number + 1)


def _excerpt(line: Line) -> str:
    text = redact_text(" ".join(line.text.split()))
    return text if len(text) <= _EXCERPT_CHARACTERS else text[: _EXCERPT_CHARACTERS - 1].rstrip() + "…"


def _for_container(made: Diagnosis, container: str) -> Diagnosis:
    """Name the cache server's field where the class's own is the engine's and both have it."""
    if container != "cache-server" or not _FIELDS_OF_CONTAINERS.match(made.field):
        return made
    path = _FIELDS_OF_CONTAINERS.sub("spec.cache.", made.field)
    hint = _FIELDS_OF_CONTAINERS.sub("spec.cache.", made.hint)
    return dataclasses.replace(made, field=path, hint=hint)
