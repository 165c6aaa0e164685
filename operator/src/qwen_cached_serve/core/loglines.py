"""A log as lines of text, each with the process that said it, freed from colours, prefixes and traceback frames.

What comes in: a file, `kubectl logs` (also with --prefix and --timestamps), a CRI log file, or the tail that the
kubelet keeps with FallbackToLogsOnError: the last 80 lines or 2,048 bytes, which may begin in the middle of a line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

CUT_BYTES = 2046
"""A tail that long was cut by the kubelet at 2,048 bytes (less what a broken character takes)."""

_LINE_CHARACTERS = 16384
"""Of a longer line only the beginning is looked at, as container runtimes cut them there too."""

_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CARRIERS = (
    re.compile(r"\[pod/[^\]\s]+\] "),
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) (?:(?:stdout|stderr) [FP] )?"),
    re.compile(r"[\w.-]+\s+\| "),
)
"""Put before each line by kubectl, the container runtime and compose."""
_PROCESS = re.compile(r"\((?P<process>[^()]{1,60}\bpid=\d+[^()]{0,60})\) ?")
_LEVELS = r"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_HEADS = (
    re.compile(rf"(?P<level>{_LEVELS}) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? (?:\[[^\]\s]+:\d+\] ?)?"),
    re.compile(rf"\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+\] LMCache (?P<level>{_LEVELS}):? ?"),
    re.compile(rf"(?P<level>{_LEVELS}):(?:\s+|[\w.]+:)"),
    re.compile(r"(?:\[rank\d+\]:)?\[(?P<letter>[IWEF])\d{3,4} \d\d:\d\d:\d\d\.\d+ [^\]]*\] ?"),
    re.compile(r"\S+:\d+:\d+ \[\d+\] NCCL (?P<level>INFO) "),
    re.compile(r"\S+\.py:\d+: \w*(?P<level>Warning): "),
)
"""Of vLLM, LMCache, the logging module, torch's C++, NCCL and the warnings module."""
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}
_QUIET = frozenset({"DEBUG", "INFO", "WARNING", "WARN", "Warning"})
_TRIED_AGAIN = re.compile(r" thrown while requesting |^Retrying in |\[Retry \d+/\d+\]")
"""What the hub's library prints about a request that it repeats."""
_FRAME = re.compile(r"[\s|+-]*File \"[^\"\n]+\", line \d+, in ")
_ECHO = re.compile(r"[\s|+-]*(?: {4}|\t)")
_NEW_LIFE = "non-default args:"
"""Said once by vLLM's API server when it starts."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without what came before its text."""

    number: int
    """Place in the text, from 0."""
    process: str
    level: str
    """Empty where the line does not say it."""
    text: str
    headed: bool
    """Whether its beginning was recognised: only then is it known to be whole."""

    @property
    def quiet(self) -> bool:
        """Whether it tells of no failure, in its own judgement."""
        return self.level in _QUIET or bool(_TRIED_AGAIN.search(self.text))


def read_lines(text: str) -> list[Line]:
    """Take a log apart; carriage returns end lines too (progress bars)."""
    plain = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return [_line(number, raw[:_LINE_CHARACTERS]) for number, raw in enumerate(plain.split("\n"))]


def _line(number: int, raw: str) -> Line:
    rest, headed = raw, False
    for carrier in _CARRIERS:
        if found := carrier.match(rest):
            rest, headed = rest[found.end() :], True
    process = ""
    if found := _PROCESS.match(rest):
        process, rest, headed = found["process"], rest[found.end() :], True
    for head in _HEADS:
        if found := head.match(rest):
            groups = found.groupdict()
            level = groups.get("level") or _LETTERS[groups["letter"]]
            return Line(number, process, level, rest[found.end() :], True)
    return Line(number, process, "", rest, headed)


def lives(lines: list[Line]) -> list[list[Line]]:
    """Split a log at the starts of the engine: a file can hold several lives of a container."""
    starts = [line.number for line in lines if _NEW_LIFE in line.text and line.level == "INFO"]
    edges = [0, *starts[1:], len(lines)]
    return [lines[begin:end] for begin, end in itertools.pairwise(edges)]


def failure_streams(lines: list[Line]) -> list[list[Line]]:
    """Lines that may tell of a failure, by process: processes interleave, and each tells its own story.

    Quiet lines and the frames of tracebacks (file, source, markers) are left out: source text is no message.
    """
    streams: dict[str, list[Line]] = {}
    for line in lines:
        if not line.quiet:
            streams.setdefault(line.process, []).append(line)
    return [list(_without_frames(stream)) for stream in streams.values()]


def _without_frames(lines: list[Line]) -> Iterator[Line]:
    in_frame = False
    for line in lines:
        if _FRAME.match(line.text):
            in_frame = True
        elif not (in_frame and _ECHO.match(line.text)):
            in_frame = False
            if line.text.strip():
                yield line
