"""Find N the slow way: start the engine with random weights, read its log, and stop it as soon as N is in it.

For images whose Python API is not the one that `vllm_api` knows. The engine gets the probe's own arguments; what it
says is taken as it stands, and what it does not say stays unknown in the report (kernel block, Mamba mode: only where
the engine got as far as its metrics). Runs in a process group of its own, which its parent (`probe`) ends as a whole.
"""

from __future__ import annotations

import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO

from .arguments import without
from .classify import DRY_START_FAILED, check_architecture, classify_words, page_padded, prefix_caching_disabled
from .engine_flags import own_arguments, shaping_flags
from .engine_log import EngineLogFacts, read_engine_log
from .engine_metrics import METRICS_LIMIT_BYTES, cache_config, engine_block_size
from .environment import quiet
from .facts import ProbeReport, ServeSettings
from .flag import LOOPBACK
from .groundwork import Groundwork, prepare
from .loopback import NoAnswer, ask
from .neutral import ENGINE, load_neutral
from .programs import locate
from .refusal import Refusal

_SETTLE_SECONDS = 3.0
"""After N was said: other ranks say theirs, and the padding is told in the next line."""
_ASK_EVERY_SECONDS = 2.0
_STOP_SECONDS = 20.0
"""Between asking the engine to stop, so that it removes its shared memory itself, and killing it."""
_LOG_LIMIT_CHARACTERS = 4 << 20
_ERROR = re.compile(r"Error\b|error[:,]|std::bad_alloc")
_QUIET_LINE = re.compile(r"(?:^|\) )(?:INFO|WARNING|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d ")
"""Lines that are no failures, whatever words they quote."""


def find_report(settings: ServeSettings) -> ProbeReport:
    """Start the engine dry and read N.

    Raises:
        Refusal: every coded answer; DryStartFailed when the engine ends without having told N.

    """
    work = prepare(settings)
    port = _free_port()
    with work.watch.stage("dryStart"):
        log, metrics = _listen(dry_start_argv(work, port), port)
    return _report(work, read_engine_log(log), metrics, log)


def dry_start_argv(work: Groundwork, port: int) -> list[str]:
    """The engine's command line: what shapes N, random weights, no graphs, no clients, and no cache server."""
    settings, versions = work.settings, work.versions
    flags = shaping_flags(settings, versions.vllm, versions.lmcache, work.profiles)
    # There is no cache server yet, and the connector would wait for one. It does not change N.
    flags = [flag for flag in flags if flag.name != "--kv-transfer-config"]
    given = [argument for flag in [*flags, *own_arguments(settings)] for argument in flag.argv()]
    # It is for the loader of the real weights; that of random ones refuses every extra setting.
    given = without(given, "--model-loader-extra-config", load_neutral().programs[ENGINE])
    # Last, so that they win over what the user gave for serving.
    own = ["--load-format", "dummy", "--enforce-eager", "--host", LOOPBACK, "--port", str(port), "--max-num-seqs", "1"]
    if settings.engine.accelerator == "GPU":
        own += ["--gpu-memory-utilization", f"{settings.engine.gpu_memory_utilization_percent / 100:.2f}"]
    return ["vllm", "serve", *given, *own]


def _listen(argv: Sequence[str], port: int) -> tuple[str, dict[str, str]]:
    """Run the engine until N is known or it ends: its log, and the labels of its metrics where it came that far."""
    command = [locate(argv[0]), *argv[1:]]
    # N is an INFO line: what the user set for a serving engine's log must not hide it.
    environ = {**quiet(os.environ), "VLLM_LOGGING_LEVEL": "INFO", "VLLM_CONFIGURE_LOGGING": "1"}
    environ.pop("VLLM_LOGGING_CONFIG_PATH", None)
    engine = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        return _follow(engine, port)
    finally:
        _stop(engine)


def _follow(engine: subprocess.Popen[bytes], port: int) -> tuple[str, dict[str, str]]:
    assert engine.stdout is not None  # noqa: S101 - narrows the type
    log, said_n = "", 0.0
    for line in _lines(engine.stdout):
        if not line:
            # The end is judged when nothing is left to read: the last words say why.
            if (line is None and engine.poll() is not None) or (
                said_n and time.monotonic() - said_n >= _SETTLE_SECONDS
            ):
                break
            if not said_n and (labels := _ask_metrics(port)):
                return log, labels
            continue
        sys.stdout.write(line)
        sys.stdout.flush()
        log = (log + line)[-_LOG_LIMIT_CHARACTERS:]
        if not said_n and read_engine_log(line).block_size is not None:
            said_n = time.monotonic()
    return log, {}


def _lines(stream: IO[bytes]) -> Iterator[str | None]:
    """Lines as they come, None whenever none has come for a while, "" when they keep coming; ends with the stream."""
    waiting: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            waiting.put(line)
        waiting.put(None)

    threading.Thread(target=read, name="qcs-dry-start-log", daemon=True).start()
    quiet_since = time.monotonic()
    while True:
        try:
            line = waiting.get(timeout=_ASK_EVERY_SECONDS / 2)
        except queue.Empty:
            quiet_since = time.monotonic()
            yield None
            continue
        if line is None:
            return
        yield line.decode("utf-8", "replace")
        if time.monotonic() - quiet_since >= _ASK_EVERY_SECONDS:
            quiet_since = time.monotonic()
            yield ""


def _ask_metrics(port: int) -> dict[str, str]:
    """Labels of `vllm:cache_config_info` once the engine serves: it prints N only when it raises the block size."""
    try:
        answer = ask(port, "/metrics", timeout_seconds=_ASK_EVERY_SECONDS, limit_bytes=METRICS_LIMIT_BYTES)
    except NoAnswer:
        return {}
    metrics = answer.body.decode("utf-8", "replace")
    size = engine_block_size(metrics)
    return {**(cache_config(metrics) or {}), "N": str(size)} if size else {}


def _stop(engine: subprocess.Popen[bytes]) -> None:
    engine.terminate()
    try:
        engine.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()


def _report(work: Groundwork, facts: EngineLogFacts, metrics: dict[str, str], log: str) -> ProbeReport:
    settings = work.settings
    block_size = int(metrics["N"]) if metrics else facts.block_size
    if facts.conflicting_block_sizes:
        sizes = ", ".join(map(str, facts.conflicting_block_sizes))
        raise Refusal("BlockSizeNotFound", f"the engine's ranks disagree about N: {sizes}")
    if block_size is None:
        raise explain_end(log)
    _check_device(settings, facts)
    if facts.architecture is not None:  # a newer engine may say it in other words
        check_architecture(facts.architecture, work.profiles)
    caching = {"True": True, "False": False}.get(metrics.get("enable_prefix_caching", ""), facts.prefix_caching)
    if settings.cache.enabled and (facts.prefix_caching_disabled or caching is False):
        raise prefix_caching_disabled(facts.prefix_caching_disabled or "it says so")
    if settings.cache.enabled and settings.engine.accelerator == "CPU" and facts.padding_percent:
        raise page_padded(f"{facts.padding_percent}%")
    return ProbeReport(
        block_size=block_size,
        kernel_block_size=0,
        attention_backends=(facts.attention_backend,) if facts.attention_backend else (),
        versions=work.versions,
        method="DryStart",
        architecture=facts.architecture or "",
        gdn_prefill_backend=facts.gdn_prefill_backend or "",
        mamba_cache_mode=metrics.get("mamba_cache_mode", ""),
        kv_cache_dtype=facts.kv_cache_dtype or metrics.get("cache_dtype", ""),
        mamba_ssm_cache_dtype=metrics.get("mamba_ssm_cache_dtype", ""),
        page_padding_bytes=-1 if facts.padding_percent else 0,
        prefix_caching=settings.cache.enabled if caching is None else caching,
        max_model_len=facts.max_model_len or 0,
        model_revision=work.commit,
        gpus=work.gpus,
        node=os.environ.get("QCS_NODE_NAME", ""),
        timings_seconds=dict(work.watch.seconds),
    )


def _check_device(settings: ServeSettings, facts: EngineLogFacts) -> None:
    wanted = settings.engine.accelerator
    if facts.device is None or (facts.device == "cpu") == (wanted == "CPU"):
        return
    raise Refusal(
        "DeviceMissing",
        f"the engine runs on {facts.device}, but the resource asks for a {wanted}",
        "Set spec.engine.image to a build for it, or correct spec.engine.accelerator.type.",
    )


def explain_end(log: str) -> Refusal:
    """Name why an engine ended without having told N: by the last words in its log that say something."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line) and not _QUIET_LINE.search(line)]
    for line in errors:
        if (named := classify_words(line)) is not None:
            return named
    last = errors[-1] if errors else (lines[-1] if lines else "it said nothing")
    return Refusal(
        DRY_START_FAILED,
        f"the engine ended before it had told its block size N: {last}",
        "The probe's log holds the engine's; `qcs explain` reads it.",
    )


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])
