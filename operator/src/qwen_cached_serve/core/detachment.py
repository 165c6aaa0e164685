"""Since when an engine serves without its cache: what a recycle waits for (DESIGN D13).

Two things count, and both have to be seen for certain: the cache server's container is down (the API server says so),
or the cache server itself says that no engine is registered with it. Not being able to ask says nothing; what was
seen before is remembered then, in `status.pods[].detached`, so that a restart of the operator neither forgets the time
nor starts it anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwen_cached_serve.core.podstate import NOT_REGISTERED, SERVER_DOWN, Detached, Phase, PodJudgement


def detached(pod: PodJudgement, previous: Mapping[str, Any] | None, stamp: str) -> Detached | None:
    """Judge one pod; `previous` is its entry in the last status, `stamp` the time of now. None: it has its cache, or
    nothing tells that it has not.
    """
    former = _former(previous)
    if pod.phase in (Phase.TERMINATING, Phase.ENDED) or not pod.gate_passed:
        return None
    if pod.cache_down:
        return Detached(SERVER_DOWN, former.since if former and former.reason == SERVER_DOWN else stamp)
    told = pod.pod.verification
    # Another life of either program has registered anew, or has not; what was said of the one before is over.
    same_life = (previous or {}).get("restarts") == pod.restarts
    remembered = former if former and former.reason == NOT_REGISTERED and same_life else None
    if told is None or told.registered is None:
        return Detached(NOT_REGISTERED, remembered.since, certain=False) if remembered else None
    if told.registered:
        return None
    return Detached(NOT_REGISTERED, remembered.since if remembered else stamp)


def _former(previous: Mapping[str, Any] | None) -> Detached | None:
    entry = (previous or {}).get("detached") or {}
    reason, since = entry.get("reason"), entry.get("since")
    return Detached(str(reason), str(since)) if reason and since else None
