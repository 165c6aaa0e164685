"""Why one life of a container ended, from everything that is there: its message, its log, the kubelet's words."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from qwen_cached_serve.core.diagnose import Diagnosis, classified, diagnose_log, refused
from qwen_cached_serve.core.observed import Termination
from qwen_cached_serve.core.refusals import diagnose_termination, shorten
from qwen_cached_serve.inpod.message import ProbeFailure, read

_OPEN = frozenset({"Unknown", "EngineStartFailed"})
"""Classes that leave the cause open: more of the log can close it."""
_QUOTES_OTHERS = frozenset({"BadEngineArgs", "CacheServerFailed", "Internal"})
"""Refusals of the pod's scripts that pass on a program's own words, which may name a cause."""
_LAST_WORDS_CHARACTERS = 240


def explain_end(container: str, end: Termination, log_tail: str) -> tuple[Diagnosis, bool]:
    """Name the cause of an end, and say whether more of the log would help."""
    written = read(end.message)
    if isinstance(written, ProbeFailure):
        return explain_refusal(container, written), False
    seconds = _seconds(end)
    killed = diagnose_termination(container, end.reason, end.exit_code, seconds)
    if killed and killed.code in ("OOMKilled", "NodeLost"):
        return killed, False
    told = [found for text in (log_tail, end.message) if text and (found := diagnose_log(text, container))]
    named = next((found for found in told if found.code not in _OPEN), None)
    if named:
        return _with_duration(named, container, seconds), False
    rest = told[0] if told else None
    more = not log_tail
    if killed:
        words = f" Its last error line is: {rest.excerpt}" if rest and rest.code == "Unknown" else ""
        return dataclasses.replace(killed, message=killed.message + words), more
    if rest:
        return dataclasses.replace(rest, message=_ended(container, end, rest.message)), more
    last = shorten(end.message.strip().rsplit("\n", 1)[-1], _LAST_WORDS_CHARACTERS)
    message = _ended(container, end, f"Its last line is: {last}" if last else "")
    remedy = f"Read its log (kubectl logs --previous -c {container})."
    return classified("ContainerFailed", message, remedy=remedy), more


def explain_refusal(container: str, written: ProbeFailure) -> Diagnosis:
    """Name the cause behind a refusal of the pod's scripts: what it quotes of a program may say more than its code."""
    made = refused(written.code, written.message, written.hint)
    if written.code not in _QUOTES_OTHERS:
        return made
    cause = diagnose_log(written.message, container)
    if cause is None or cause.code in _OPEN or cause.code == written.code:
        return made
    return cause


def _with_duration(found: Diagnosis, container: str, seconds: float | None) -> Diagnosis:
    """Say how long a start lasted that was ended: next to the field's value it tells whether that was the reason."""
    if found.code != "KilledDuringStart" or seconds is None:
        return found
    message = f"Container {container} was told to stop {seconds:,.0f} s after its start, before it served."
    return dataclasses.replace(found, message=message)


def _ended(container: str, end: Termination, words: str) -> str:
    return f"Container {container} ended with exit code {end.exit_code}. {words}".strip()


def _seconds(end: Termination) -> float | None:
    try:
        began, ended = datetime.fromisoformat(end.started_at), datetime.fromisoformat(end.finished_at)
    except ValueError:
        return None
    return max((ended - began).total_seconds(), 0.0)
