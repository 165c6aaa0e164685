"""The engine's parent, as pid 1 of a pid namespace and as an ordinary process (a pod with one namespace for all)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod.facts import CacheSettings, ProbeReport, ServeSettings, dumps
from qwen_cached_serve.inpod.life import current_life, note
from qwen_cached_serve.inpod.message import ProbeFailure, read
from tests.machine import unavailable
from tests.unit.inpod.pod_folder import PodFolder, wait_for

LOADING = """
import time
print("loading", flush=True)
time.sleep(3600)
"""

SERVING = """
import signal, sys, time

def drain(*_):
    print("draining", flush=True)
    time.sleep(3)  # three times what a loading engine has
    sys.exit(0)

signal.signal(signal.SIGTERM, drain)
print("serving", flush=True)
while True:
    signal.pause()
"""

STUCK = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("worker", worker.pid, flush=True)
time.sleep(3600)
"""

LEAVES_A_WORKER = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("worker", worker.pid, flush=True)
os._exit(5)
"""

LEAVES_AN_ORPHAN = """
import os, subprocess, sys, time
parent = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '']).pid)"
orphan = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
while os.path.exists(f"/proc/{orphan}"):  # until somebody has reaped it
    time.sleep(0.01)
"""

SAYS_WHICH = """
import signal, sys
signals = {signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("waiting", flush=True)
print("got", signal.Signals(signal.sigwait(signals)).name, flush=True)
"""

IN_A_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass
class Container:
    """The engine's container: its first process, started by us or by `unshare`."""

    pod: PodFolder
    process: subprocess.Popen[str]
    in_a_namespace: bool

    def kill(self, number: signal.Signals) -> None:
        """Signal the first process from outside, as the container runtime does."""
        pid = self.process.pid
        if self.in_a_namespace:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        os.kill(pid, number)

    def ends_with(self) -> int:
        """Wait for the end; the exit status."""
        return self.process.wait(timeout=60)

    def says(self, word: str) -> str:
        """Wait for a word of the engine; everything said so far."""
        return wait_for(lambda: said if word in (said := self.pod.said("engine")) else None)

    def pass_gate(self) -> None:
        """What the gate writes."""
        life = json.loads(self.pod.layout.registrations.read_text())["life"]
        self.pod.layout.gate.write_text(json.dumps({"life": life}))


Start = Callable[[str], Container]


@pytest.fixture
def pod(tmp_path: Path, cpu_settings: ServeSettings, report: ProbeReport) -> Iterator[PodFolder]:
    """A probed pod without a cache; its engine has one second to end while it loads."""
    engine = replace(cpu_settings.engine, shutdown_timeout_seconds=1)
    folder = PodFolder(tmp_path / "pod", replace(cpu_settings, engine=engine, cache=CacheSettings(enabled=False)))
    (folder.layout.state / "report.json").write_text(dumps(replace(report, gpus=())))
    (folder.layout.state / "engine.argv.json").write_text(json.dumps(["vllm", "serve", "m"]))
    yield folder
    folder.close()


def start_in(pod: PodFolder, program: str, within: tuple[str, ...]) -> Container:
    pod.fake_program("vllm", program)
    return Container(pod, pod.start("engine", within=within), bool(within))


@pytest.fixture(scope="session")
def pid_namespaces() -> None:
    """This machine lets us make pid namespaces."""
    if shutil.which("unshare") is None or subprocess.run([*IN_A_NAMESPACE, "true"], check=False).returncode:
        unavailable("`unshare --pid` does not work: run as root")


@pytest.fixture
def as_pid_1(pod: PodFolder, pid_namespaces: None) -> Start:
    """Start the container with a fake `vllm`, as pid 1 of a namespace."""
    return lambda program: start_in(pod, program, IN_A_NAMESPACE)


@pytest.fixture
def as_any_process(pod: PodFolder) -> Start:
    """Start the container with a fake `vllm`, in this namespace."""
    return lambda program: start_in(pod, program, ())


@pytest.fixture(params=["as_pid_1", "as_any_process"])
def start(request: pytest.FixtureRequest) -> Start:
    """Both ways."""
    found: Start = request.getfixturevalue(request.param)
    return found


def is_gone(pid: int) -> bool:
    """No such process, or a zombie that nobody reaps on this host."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_an_engine_that_has_no_handler_yet_ends_by_the_signal_itself(start: Start) -> None:
    container = start(LOADING)
    container.says("loading")
    container.kill(signal.SIGTERM)
    assert container.ends_with() == 128 + signal.SIGTERM
    assert container.says("ended by").splitlines()[-1] == "qcs engine: the engine was ended by signal 15 (Terminated)"


def test_an_engine_that_has_passed_its_gate_drains_as_long_as_it_wants(start: Start) -> None:
    container = start(SERVING)
    container.says("serving")
    container.pass_gate()
    container.kill(signal.SIGTERM)
    assert container.ends_with() == 0
    assert "killing it" not in container.says("draining")


def test_an_engine_before_its_gate_has_nothing_to_drain(start: Start) -> None:
    container = start(SERVING)
    container.says("serving")
    container.pod.layout.gate.write_text(json.dumps({"life": "a former one"}))
    container.kill(signal.SIGTERM)
    assert container.ends_with() == 128 + signal.SIGKILL
    assert "serves nobody and has not ended 1 s after being told to: killing it" in container.says("killing it")


@pytest.mark.parametrize("verb", ["engine", "cache-server"])
def test_both_containers_end_while_they_still_check_their_gpus(
    pod: PodFolder, report: ProbeReport, settings: ServeSettings, pid_namespaces: None, verb: str
) -> None:
    pod.write(settings)
    (pod.layout.state / "report.json").write_text(dumps(report))
    (pod.layout.state / "cache-server.argv.json").write_text('["lmcache", "server"]')
    pod.fake_program("nvidia-smi", f"open({str(pod.root / 'asked')!r}, 'w').close()\nimport time; time.sleep(3600)")
    container = Container(pod, pod.start(verb, within=IN_A_NAMESPACE), in_a_namespace=True)
    wait_for((pod.root / "asked").exists)
    container.kill(signal.SIGTERM)
    assert container.ends_with() == 128 + signal.SIGTERM


def test_a_stuck_engine_is_killed_with_its_workers(as_any_process: Start) -> None:
    container = as_any_process(STUCK)
    worker = int(container.says("worker").split()[-1])
    container.kill(signal.SIGTERM)
    assert container.ends_with() == 128 + signal.SIGKILL
    wait_for(lambda: is_gone(worker))


def test_workers_go_with_an_engine_that_has_ended(as_any_process: Start) -> None:
    container = as_any_process(LEAVES_A_WORKER)
    assert container.ends_with() == 5
    worker = int(container.says("worker").split()[-1])
    wait_for(lambda: is_gone(worker))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2])
def test_every_signal_to_stop_or_to_tell_reaches_the_engine(start: Start, number: signal.Signals) -> None:
    container = start(SAYS_WHICH)
    container.says("waiting")
    container.kill(number)
    assert container.ends_with() == 0
    assert f"got {number.name}" in container.says("got")


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 137),  # what the kernel does to one process that is out of memory
        ("import os; os.kill(os.getpid(), 11)", 139),
    ],
)
def test_the_end_of_the_engine_is_the_containers(start: Start, end: str, status: int) -> None:
    assert start(end).ends_with() == status


def test_nothing_is_said_after_the_last_words_of_an_engine_that_fails(as_any_process: Start) -> None:
    """The kubelet takes the end of the log for the termination message."""
    container = as_any_process("raise SystemExit('ValueError: the reason')")
    assert container.ends_with() == 1
    assert container.says("ValueError") == "ValueError: the reason\n"


def test_an_engine_that_cannot_be_executed_is_a_failure(as_any_process: Start, pod: PodFolder) -> None:
    container = as_any_process("")
    container.ends_with()
    (pod.programs / "vllm").write_text("#!/nowhere/python\n")
    assert pod.run("engine")[0] == 1


def test_pid_1_reaps_orphans(as_pid_1: Start) -> None:
    assert as_pid_1(LEAVES_AN_ORPHAN).ends_with() == 0


def test_a_killed_parent_takes_the_engine_along(as_any_process: Start) -> None:
    container = as_any_process(LOADING)
    container.says("loading")
    engine = json.loads(container.pod.layout.registrations.read_text())["pid"]
    assert not is_gone(engine)
    container.process.kill()
    container.process.wait()
    wait_for(lambda: is_gone(engine))


def test_the_engine_starts_with_no_signal_blocked_or_ignored(as_any_process: Start, pod: PodFolder) -> None:
    container = as_any_process("")
    container.ends_with()
    (pod.programs / "vllm").write_text("#!/bin/sh\nexec grep -E '^Sig(Blk|Ign)' /proc/self/status\n")
    status, said = pod.run("engine")
    assert status == 0
    # 32 and 33 are the C library's own: no program can change what it inherited of them.
    changeable = ~(1 << 31 | 1 << 32)
    masks = {line.split()[0]: int(line.split()[1], 16) & changeable for line in said.splitlines()}
    assert masks == {"SigBlk:": 0, "SigIgn:": 0}


START_WITH_A_FAKE_CLOCK = """
import sys, time
from pathlib import Path
from qwen_cached_serve.inpod.layout import Layout
from qwen_cached_serve.inpod.start import start_engine
hours = Path(sys.argv[1])
clock = lambda: time.monotonic() + 3600.0 * (int(hours.read_text()) if hours.exists() else 0)
sys.exit(start_engine(Layout.from_environ(), clock))
"""


class TestStartLimit:
    """An engine that does not pass its gate in time (3600 s by default) is ended, whatever the kubelet counts."""

    @pytest.fixture
    def container(self, pod: PodFolder) -> Callable[[str], Container]:
        """Start the container with a fake engine and a fake clock, which `an_hour_later` moves."""

        def begin(program: str) -> Container:
            pod.fake_program("vllm", program)
            with pod.log("engine").open("a", encoding="utf-8") as log:
                process = subprocess.Popen(
                    [pod.python, "-c", START_WITH_A_FAKE_CLOCK, str(pod.root / "hours")],
                    env=pod.environ(), stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                )  # fmt: skip
            pod.running.append(process)
            return Container(pod, process, in_a_namespace=False)

        return begin

    @staticmethod
    def an_hour_later(container: Container) -> None:
        (container.pod.root / "hours").write_text("1")
        container.kill(signal.SIGCHLD)  # it looks at the clock again

    @staticmethod
    def refusal(container: Container) -> ProbeFailure:
        found = read(container.pod.layout.termination_log.read_text())
        assert isinstance(found, ProbeFailure)
        return found

    def test_it_says_what_the_gate_saw_last(self, container: Start) -> None:
        engine = container(SERVING)
        engine.says("serving")
        layout = engine.pod.layout
        life = current_life(layout.registrations)
        assert life is not None
        note(layout.seen, life, "N = 784 everywhere; the warm-up request has got no answer")
        self.an_hour_later(engine)
        assert engine.ends_with() == 1
        found = self.refusal(engine)
        assert found.code == "StartupTimeout"
        assert "3600 s after its container's start" in found.message
        assert found.message.endswith("saw last: N = 784 everywhere; the warm-up request has got no answer")
        assert "spec.engine.startupTimeoutSeconds" in found.hint
        assert "qcs engine: StartupTimeout: " in engine.says("StartupTimeout")
        assert is_gone(json.loads(layout.registrations.read_text())["pid"])

    def test_what_was_seen_of_a_former_life_is_not_said(self, container: Start) -> None:
        engine = container(LOADING)
        engine.says("loading")
        engine.pod.layout.seen.write_text(json.dumps({"life": "a former one", "seen": "something else"}))
        self.an_hour_later(engine)
        assert engine.ends_with() == 1
        assert self.refusal(engine).message.endswith("saw last: nothing of this engine")

    def test_one_that_does_not_end_is_killed_with_its_workers(self, container: Start) -> None:
        engine = container(STUCK)
        worker = int(engine.says("worker").split()[-1])
        self.an_hour_later(engine)
        assert engine.ends_with() == 1
        assert self.refusal(engine).code == "StartupTimeout"
        wait_for(lambda: is_gone(worker))

    def test_one_that_has_passed_serves_on_and_drains(self, container: Start) -> None:
        engine = container(SERVING)
        engine.says("serving")
        engine.pass_gate()
        self.an_hour_later(engine)
        engine.kill(signal.SIGTERM)
        assert engine.ends_with() == 0
        assert "StartupTimeout" not in engine.says("draining")
        assert not engine.pod.layout.termination_log.exists()

    def test_one_that_is_told_to_stop_is_not_overdue_as_well(self, container: Start) -> None:
        engine = container(STUCK)
        engine.says("worker")
        engine.kill(signal.SIGTERM)
        self.an_hour_later(engine)
        assert engine.ends_with() == 128 + signal.SIGKILL
        assert not engine.pod.layout.termination_log.exists()

    def test_the_limit_is_the_resources_own(self, pod: PodFolder, cpu_settings: ServeSettings) -> None:
        plain = replace(cpu_settings, cache=CacheSettings(enabled=False), startup_timeout_seconds=1)
        pod.write(plain)
        engine = start_in(pod, LOADING, ())
        assert engine.ends_with() == 1
        assert "the start-up gate 1 s after" in self.refusal(engine).message


class TestDrain:
    """The preStop hook."""

    def test_an_engine_that_loads_has_no_clients_to_wait_for(self, as_any_process: Start) -> None:
        container = as_any_process(LOADING)
        container.says("loading")
        assert container.pod.run("drain", arguments=["3600"]) == (0, "")

    def test_nor_has_a_container_that_waits_for_its_cache_server(self, pod: PodFolder) -> None:
        assert pod.run("drain", arguments=["3600"]) == (0, "")

    def test_clients_of_a_serving_engine_have_their_time(self, as_any_process: Start) -> None:
        container = as_any_process(SERVING)
        container.says("serving")
        container.pass_gate()
        began = time.monotonic()
        assert container.pod.run("drain", arguments=["2"]) == (0, "qcs drain: 2 s for clients to go elsewhere\n")
        assert time.monotonic() - began >= 2

    def test_it_ends_with_the_engine(self, as_any_process: Start) -> None:
        container = as_any_process(LOADING)
        container.says("loading")
        container.pass_gate()
        command = [container.pod.python, str(container.pod.layout.code), "drain", "3600"]
        hook = subprocess.Popen(command, env=container.pod.environ(), stdout=subprocess.PIPE, text=True)
        assert hook.stdout is not None
        assert hook.stdout.readline().startswith("qcs drain: 3600 s")
        container.kill(signal.SIGTERM)
        container.ends_with()
        hook.communicate(timeout=60)
        assert hook.returncode == 0

    def test_a_wrong_time_is_a_wrong_command_line(self, pod: PodFolder) -> None:
        status, said = pod.run("drain", arguments=["soon"])
        assert status == 2
        assert "drain SECONDS" in said
