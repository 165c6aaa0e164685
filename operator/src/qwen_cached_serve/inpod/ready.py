"""The start-up gate: the engine may serve once it and the cache server provably speak of the same blocks (DESIGN §3).

Runs as the engine's startup probe: exit 0 passes, 1 fails with one line that the kubelet shows in its event. A life
of the engine that passed once passes at once from then on; losing the registration later is a condition, never
NotReady.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable

from .engine_metrics import METRICS_LIMIT_BYTES, engine_block_size
from .facts import ProbeReport, ServeSettings
from .layout import Layout, read_json, write_atomic
from .life import current_life, gate_content, note
from .loopback import NoAnswer, ask
from .refusal import Refusal
from .registrations import STATUS_LIMIT_BYTES, ServerStatus, parse_status

_SHORT_SECONDS = 5.0
_WARM_UP_SECONDS = 600.0
"""A warm-up of one chunk takes a second or two; a slow CPU took 20 s for 9,000 tokens. The kubelet's own limit is
shorter.
"""
_FIRST_TOKEN, _TOKENS = 10, 200
"""Token ids that every vocabulary has, away from the special ones at its ends."""


class NotReady(Exception):  # noqa: N818 - an answer, not a defect
    """A check has failed; the message is the line for the kubelet."""


def run_ready(layout: Layout) -> int:
    """Run the gate once; 0 passed, 1 not (yet)."""
    life = current_life(layout.registrations)
    if life is None:
        print("not ready: the engine has not been started yet", flush=True)
        return 1
    tell = functools.partial(note, layout.seen, life)
    try:
        settings = layout.settings()
        if read_json(layout.gate) == gate_content(life):
            return 0
        passed = check(settings, layout.report() if settings.cache.enabled else None, life.known_ids, tell)
    except (NotReady, Refusal) as reason:
        words = reason.message if isinstance(reason, Refusal) else str(reason)
        tell(words)
        print(f"not ready: {words}", flush=True)
        return 1
    write_atomic(layout.gate, json.dumps(gate_content(life)))
    print(f"ready: {passed}", flush=True)
    return 0


def check(
    settings: ServeSettings, report: ProbeReport | None, known_ids: frozenset[str], tell: Callable[[str], None]
) -> str:
    """Make every check, in order; returns what was seen. `tell` takes what is seen before the one that can hang.

    Raises:
        NotReady: the first check that fails.

    """
    ports = settings.ports
    _check_health(ports.engine)
    if report is None:
        return "the engine is healthy (the cache is off)"
    block_size = report.block_size
    check_engine_block_size(_get(ports.engine, "/metrics", METRICS_LIMIT_BYTES).decode("utf-8", "replace"), block_size)
    status = _server_status(ports.cache_server_http)
    chunk = settings.cache.chunk_blocks * block_size
    check_server(status, block_size, chunk, known_ids, settings.engine.tensor_parallel_size)
    found = f"N = {block_size} in engine and cache server, chunk {chunk}"
    # The kubelet kills a run that takes too long, which then says nothing any more.
    tell(f"{found}, all workers registered; the warm-up request has got no answer")
    return f"{found}; {_warm_up(settings, report, chunk)}"


def check_engine_block_size(metrics: str, block_size: int) -> None:
    """Compare the engine's own N with the probed one.

    Raises:
        NotReady: another N, or none.

    """
    found = engine_block_size(metrics)
    if found is None:
        raise NotReady("the engine's metrics do not tell its block size (vllm:cache_config_info)")
    if found != block_size:
        raise NotReady(f"the engine's block size N is {found}, but the probe found {block_size}: replace the pod")


def check_server(status: ServerStatus, block_size: int, chunk: int, known_ids: frozenset[str], ranks: int) -> None:
    """Compare what the cache server holds with what it should.

    Raises:
        NotReady: another chunk size or block size, or not one new registration for every rank.

    """
    if status.chunk_size != chunk:
        raise NotReady(
            f"the cache server's chunk size is {status.chunk_size}, not {chunk} (a multiple of N = {block_size}): "
            "replace the pod"
        )
    new = status.ids - known_ids
    if len(new) < ranks:
        left = f", {len(status.ids & known_ids)} of a former life" if status.ids & known_ids else ""
        raise NotReady(f"{len(new)} of {ranks} engine workers are registered with the cache server{left}")
    for worker in sorted(new):
        blocks = status.tokens_per_block.get(worker, frozenset())
        if blocks != {block_size}:
            seen = ", ".join(str(size) for size in sorted(blocks)) or "none"
            raise NotReady(f"the cache server holds blocks of {seen} tokens for this engine, not N = {block_size}")


def warm_up_prompt(chunk: int, max_model_len: int) -> list[int] | None:
    """Token ids one longer than a chunk, so that a whole one is stored; None when no request can be that long.

    Always the same: after an engine restart the prompt is found in the cache, which proves loading as well.
    """
    length = chunk + 1
    if max_model_len and length + 1 > max_model_len:
        return None
    return [_FIRST_TOKEN + (index * 7 + index // _TOKENS) % _TOKENS for index in range(length)]


def _warm_up(settings: ServeSettings, report: ProbeReport, chunk: int) -> str:
    prompt = warm_up_prompt(chunk, report.max_model_len)
    if prompt is None:
        return (
            f"no warm-up, since no request can be longer than a chunk (longest {report.max_model_len} tokens): "
            "nothing will ever be cached"
        )
    name = settings.served_names[0] if settings.served_names else settings.model
    body = json.dumps({"model": name, "prompt": prompt, "max_tokens": 1, "temperature": 0}).encode("utf-8")
    key = os.environ.get("VLLM_API_KEY")
    began = time.monotonic()
    try:
        answer = ask(
            settings.ports.engine,
            "/v1/completions",
            timeout_seconds=_WARM_UP_SECONDS,
            limit_bytes=1 << 20,
            body=body,
            headers={"Authorization": f"Bearer {key}"} if key else None,
        )
    except NoAnswer as reason:
        raise NotReady(f"the warm-up request got no answer: {reason}") from reason
    if answer.status != 200:
        words = answer.body[:300].decode("utf-8", "replace")
        raise NotReady(f"the warm-up request was answered with {answer.status}: {' '.join(words.split())}")
    return f"warm-up of {len(prompt)} tokens took {time.monotonic() - began:.1f} s"


def _check_health(port: int) -> None:
    try:
        answer = ask(port, "/health", timeout_seconds=_SHORT_SECONDS, limit_bytes=1 << 16)
    except NoAnswer as reason:
        raise NotReady(f"the engine does not answer yet ({reason})") from reason
    if answer.status != 200:
        raise NotReady(f"the engine is not healthy (/health says {answer.status})")


def _server_status(port: int) -> ServerStatus:
    try:
        return parse_status(_get(port, "/status", STATUS_LIMIT_BYTES))
    except ValueError as error:
        raise NotReady(f"the cache server's /status cannot be read: {error}") from error


def _get(port: int, path: str, limit_bytes: int) -> bytes:
    try:
        answer = ask(port, path, timeout_seconds=_SHORT_SECONDS, limit_bytes=limit_bytes)
    except NoAnswer as reason:
        raise NotReady(str(reason)) from reason
    if answer.status != 200:
        raise NotReady(f"port {port}{path} answers {answer.status}")
    return answer.body


if __name__ == "__main__":
    sys.exit(run_ready(Layout.from_environ()))
