"""The supervisor: restarts, giving up, signals, reaping; with a fake cache server and real processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.facts import Ports, ProbeReport, ServeSettings, dumps
from qwen_cached_serve.inpod.flags import HEARTBEAT_SECONDS
from qwen_cached_serve.inpod.message import ProbeFailure, read
from qwen_cached_serve.inpod.restarts import (
    GIVE_UP_AFTER_LIVES,
    LONGEST_WAIT_SECONDS,
    NOTICED_OUTAGE_SECONDS,
    GiveUp,
    Life,
    Restart,
    RestartPolicy,
    first_start,
)
from tests.unit.inpod.pod_folder import PodFolder, wait_for

Http = Callable[..., tuple[int, bytes]]

FAKE_LMCACHE = """
import http.server, json, os, signal, subprocess, sys

state = os.environ["QCS_STATE_DIR"]
with open(f"{state}/lives", "a") as lives:
    lives.write(f"{os.getpid()} {json.dumps(sys.argv[1:])} {os.environ['LMCACHE_TRACK_USAGE']}\\n")
print("Traceback of a fake:", file=sys.stderr)
print("\\x1b[31mRuntimeError: out of pinned memory\\x1b[0m", file=sys.stderr, flush=True)
mode = os.environ.get("FAKE_MODE", "serve")
if mode == "crash":
    sys.exit(1)
if mode == "usage":
    sys.exit(2)
if mode == "orphan":
    subprocess.Popen(["sh", "-c", "sleep 0.2 & exec true"])
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args):
        pass

port = int(sys.argv[sys.argv.index("--http-port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

DRIVER = """
import ctypes, sys, types
package = sys.modules["qwen_cached_serve"] = types.ModuleType("qwen_cached_serve")
package.__path__ = [{code!r} + "/qwen_cached_serve"]
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans come to us, as to pid 1
from qwen_cached_serve.inpod import supervise
from qwen_cached_serve.inpod.layout import Layout
from qwen_cached_serve.inpod.restarts import RestartPolicy
supervise._STOP_SECONDS = 1.0
layout = Layout.from_environ()
policy = RestartPolicy(outage_seconds=0.2)
sys.exit(supervise.Supervisor(layout, layout.settings(), layout.cache_server_argv(), policy).run())
"""


@pytest.fixture
def pod(
    tmp_path: Path, settings: ServeSettings, report: ProbeReport, free_ports: Callable[[int], list[int]]
) -> Iterator[PodFolder]:
    upstream, relay = free_ports(2)
    folder = PodFolder(tmp_path, replace(settings, ports=Ports(cache_server_http=upstream, relay=relay)))
    argv = ["lmcache", "server", "--http-port", str(upstream)]
    (folder.layout.state / "cache-server.argv.json").write_text(json.dumps(argv))
    (folder.layout.state / "report.json").write_text(dumps(replace(report, gpus=())))
    folder.fake_program("lmcache", FAKE_LMCACHE)
    yield folder
    folder.close()


@pytest.fixture
def quick(pod: PodFolder) -> PodFolder:
    """The same, but a restart does not wait until an engine has noticed, since there is none."""
    (pod.layout.code / "__main__.py").write_text(DRIVER.format(code=str(pod.layout.code)))
    return pod


def lives(pod: PodFolder) -> list[int]:
    path = pod.layout.state / "lives"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def relay_url(pod: PodFolder) -> str:
    return f"http://127.0.0.1:{pod.layout.settings().ports.relay}"


def answers(pod: PodFolder, http: Http) -> bool:
    try:
        return http(f"{relay_url(pod)}/healthcheck")[0] == 200
    except OSError:
        return False


def test_it_runs_the_recorded_command_and_the_relay(pod: PodFolder, http: Http) -> None:
    container = pod.start("cache-server")
    wait_for(lambda: answers(pod, http))
    (line,) = (pod.layout.state / "lives").read_text().splitlines()
    assert '["server", "--http-port"' in line
    assert line.endswith(" false")  # usage reporting is off
    wait_for(pod.layout.alive.exists)
    container.send_signal(signal.SIGTERM)
    assert container.wait(timeout=30) == 0
    assert "RuntimeError: out of pinned memory" in pod.said("cache-server")  # its stderr is passed on


def test_a_killed_server_comes_back_and_the_relay_stays(quick: PodFolder, http: Http) -> None:
    container = quick.start("cache-server")
    wait_for(lambda: answers(quick, http))
    (first,) = lives(quick)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(lives(quick)) == 2)
    wait_for(lambda: answers(quick, http))
    assert container.poll() is None
    assert "signal SIGKILL" in quick.said("cache-server")


def test_the_engines_start_may_ask_for_another_server(quick: PodFolder, http: Http) -> None:
    """When the server keeps the memory of a dead engine; a request from before is taken as well."""
    quick.layout.renewal.touch()
    container = quick.start("cache-server")
    wait_for(lambda: answers(quick, http))
    wait_for(lambda: not quick.layout.renewal.exists())
    before = len(lives(quick))
    quick.layout.renewal.touch()
    wait_for(lambda: len(lives(quick)) == before + 1)
    assert not quick.layout.renewal.exists()
    wait_for(lambda: answers(quick, http))
    assert container.poll() is None
    assert "asks for a new cache server" in quick.said("cache-server")


def test_a_server_that_never_answers_ends_the_container(quick: PodFolder) -> None:
    container = quick.start("cache-server", {"FAKE_MODE": "crash"})
    assert container.wait(timeout=120) == 1
    assert len(lives(quick)) == GIVE_UP_AFTER_LIVES
    failure = read(quick.layout.termination_log.read_text())
    assert isinstance(failure, ProbeFailure)
    assert failure.code == "CacheServerFailed"
    assert failure.message.endswith("(exit status 1): RuntimeError: out of pinned memory")


def test_refused_arguments_end_the_container_at_once(quick: PodFolder) -> None:
    assert quick.start("cache-server", {"FAKE_MODE": "usage"}).wait(timeout=30) == 1
    assert len(lives(quick)) == 1
    assert "refuses its arguments" in quick.layout.termination_log.read_text()


def test_sigterm_while_it_waits_for_a_restart(pod: PodFolder) -> None:
    container = pod.start("cache-server", {"FAKE_MODE": "crash"})
    wait_for(lambda: "next start in" in pod.said("cache-server"))
    container.send_signal(signal.SIGTERM)
    assert container.wait(timeout=10) == 0
    assert len(lives(pod)) == 1


def test_a_server_that_ignores_sigterm_is_killed(quick: PodFolder, http: Http) -> None:
    container = quick.start("cache-server", {"FAKE_MODE": "stubborn"})
    wait_for(lambda: answers(quick, http))
    (server,) = lives(quick)
    container.send_signal(signal.SIGTERM)
    assert container.wait(timeout=30) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def children_states(pid: int) -> list[str]:
    """State letters of the processes whose parent is `pid`."""
    states = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            states.append(fields[0])
    return states


def test_orphans_are_reaped(quick: PodFolder, http: Http) -> None:
    container = quick.start("cache-server", {"FAKE_MODE": "orphan"})
    wait_for(lambda: answers(quick, http))
    wait_for(lambda: len(children_states(container.pid)) == 1)  # the server alone: no zombie stays


def test_without_a_report_nothing_starts(pod: PodFolder) -> None:
    (pod.layout.state / "report.json").unlink()
    status, said = pod.run("cache-server")
    assert (status, "ProbeMissing" in said) == (1, True)
    assert lives(pod) == []
    assert "ProbeMissing" in pod.layout.termination_log.read_text()


def test_with_the_cache_off_it_refuses(pod: PodFolder) -> None:
    (pod.layout.state / "cache-server.argv.json").write_text("[]")
    status, said = pod.run("cache-server")
    assert (status, "the cache is off" in said) == (1, True)


def crash(policy: RestartPolicy, now: float, *, answered: bool, lived: float = 5) -> Restart | GiveUp:
    return policy.after(Life(now - lived, now, 1, now - lived if answered else None))


def test_an_outage_lasts_until_the_engine_has_noticed() -> None:
    # A heartbeat every T seconds that waits T seconds for its answer: less than 2 T can go unnoticed (LMCache#4642).
    assert NOTICED_OUTAGE_SECONDS > 2 * HEARTBEAT_SECONDS
    assert crash(RestartPolicy(), 100, answered=True) == Restart(100 + NOTICED_OUTAGE_SECONDS)
    assert first_start(100, None) == 100
    assert first_start(100, 98) == 98 + NOTICED_OUTAGE_SECONDS
    assert first_start(1000, 98) == 1000
    assert first_start(100, 5000) == 100  # a clock that was set back must not keep the cache away


def test_back_off_grows_and_is_forgotten() -> None:
    policy = RestartPolicy()
    waits = []
    for _ in range(8):
        decision = crash(policy, 0, answered=True)
        assert isinstance(decision, Restart)
        waits.append(decision.at)
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_WAIT_SECONDS
    assert crash(policy, 0, answered=True, lived=3600) == Restart(NOTICED_OUTAGE_SECONDS)


def test_a_server_that_answered_once_is_never_given_up() -> None:
    policy = RestartPolicy()
    for _ in range(50):
        assert isinstance(crash(policy, 0, answered=True), Restart)
    for _ in range(GIVE_UP_AFTER_LIVES - 1):
        assert isinstance(crash(policy, 0, answered=False), Restart)
    assert isinstance(crash(policy, 0, answered=False), GiveUp)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1e5)), max_size=30))
def test_waits_are_bounded(history: list[tuple[bool, float]]) -> None:
    policy, now = RestartPolicy(), 1000.0
    for answered, lived in history:
        decision = crash(policy, now, answered=answered, lived=lived)
        if isinstance(decision, GiveUp):
            return
        assert NOTICED_OUTAGE_SECONDS <= decision.at - now <= LONGEST_WAIT_SECONDS
        now += lived


def test_the_restart_is_not_before_the_server_has_been_gone_long_enough(pod: PodFolder, http: Http) -> None:
    """A new container (the kubelet restarted it) waits as well, since the engine may not have noticed yet."""
    pod.layout.alive.touch()
    gone_since = pod.layout.alive.stat().st_mtime
    pod.start("cache-server")
    wait_for(lambda: lives(pod))
    assert time.time() - gone_since >= NOTICED_OUTAGE_SECONDS
