"""`qcs explain`: the cause of a failure from a log on disk, a termination message, or `kubectl describe`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.core.diagnose import Diagnosis, diagnose_log, observe_log
from qwen_cached_serve.core.endings import explain_refusal
from qwen_cached_serve.core.observed import CACHE_SERVER, ENGINE, PROBE
from qwen_cached_serve.inpod.engine_log import EngineLogFacts, read_engine_log
from qwen_cached_serve.inpod.message import CompactReport, ProbeFailure, read

LIMIT_BYTES = 64 << 20
"""Of a larger file only the end is read: a start of the engine prints less than 1 MB."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a text says."""

    diagnosis: Diagnosis
    facts: EngineLogFacts


def read_text(file: str) -> str:
    """Read a file, `-` for standard input; bytes that are no UTF-8 are replaced.

    Raises:
        CliError: it cannot be read.

    """
    try:
        if file == "-":
            return sys.stdin.buffer.read()[-LIMIT_BYTES:].decode("utf-8", "replace")
        with Path(file).open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - LIMIT_BYTES))
            return opened.read().decode("utf-8", "replace")
    except OSError as error:
        raise CliError(f"{file}: cannot be read: {error.strerror}") from error


def explain(text: str, container: str = ENGINE) -> Explanation:
    """Classify a text.

    Raises:
        CliError: no such container.

    """
    if container not in (ENGINE, CACHE_SERVER, PROBE):
        raise CliError(f"--container {container}: give {ENGINE}, {CACHE_SERVER} or {PROBE}")
    message = read(text.strip())
    if isinstance(message, ProbeFailure):
        return Explanation(explain_refusal(container, message), EngineLogFacts())
    if isinstance(message, CompactReport):
        found = EngineLogFacts(block_size=message.block_size, kernel_block_size=message.kernel_block_size)
        return Explanation(_nothing(f"The probe succeeded: N = {message.block_size} tokens."), found)
    facts = read_engine_log(text)
    if diagnosis := diagnose_log(text, container) or observe_log(text):
        return Explanation(diagnosis, facts)
    return Explanation(_nothing("Nothing in the text tells of a failure."), facts)


def _nothing(words: str) -> Diagnosis:
    return Diagnosis("NoFailure", words, "", needs_a_person=False)


def as_text(explanation: Explanation) -> Iterator[str]:
    """Return lines for people."""
    found = explanation.diagnosis
    yield f"{found.code}: {found.message}"
    if found.field:
        yield f"  field:   {found.field}"
    if found.hint:
        yield f"  do:      {found.hint}"
    if found.numbers:
        yield "  numbers: " + ", ".join(_figure(name, value) for name, value in found.numbers.items())
    if found.excerpt:
        yield f"  line {found.line}: {found.excerpt}"
    facts = _facts(explanation.facts)
    if facts:
        yield "  the log also says: " + ", ".join(f"{name} {value}" for name, value in facts.items())


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return the same for programs; sizes are in bytes."""
    found = explanation.diagnosis
    return {
        "code": found.code,
        "field": found.field,
        "explanation": found.message,
        "remedy": found.hint,
        "numbers": dict(found.numbers),
        "needsAPerson": found.needs_a_person,
        "line": found.line,
        "excerpt": found.excerpt,
        "facts": _facts(explanation.facts),
    }


def _facts(facts: EngineLogFacts) -> dict[str, Any]:
    named = {
        "blockSize": facts.block_size,
        "conflictingBlockSizes": list(facts.conflicting_block_sizes),
        "kernelBlockSize": facts.kernel_block_size,
        "attentionBackend": facts.attention_backend,
        "paddingPercent": facts.padding_percent,
        "prefixCachingDisabled": bool(facts.prefix_caching_disabled),
    }
    return {name: value for name, value in named.items() if value}


def _figure(name: str, value: int) -> str:
    if name.endswith("Bytes"):
        return f"{name.removesuffix('Bytes')} {value / (1 << 30):.2f} GiB"
    return f"{name} {value}"
