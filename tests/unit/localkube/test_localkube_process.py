"""Against real processes."""

import signal
import subprocess
import time

import pytest

from localkube import process
from localkube.errors import ComponentDiedError, LocalKubeError
from localkube.process import Process


@pytest.fixture
def mark(tmp_path):
    yield tmp_path
    process.stop(process.marked(tmp_path), 0.1)


def until(condition, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


def test_started_processes_and_their_children_carry_the_mark(mark):
    log = mark / "log"
    parent = process.start(["sh", "-c", "sleep 60 & echo $! started; wait"], log, mark)
    until(lambda: "started" in log.read_text())
    child = int(log.read_text().split()[0])
    # A process that is just becoming its program has no environment for a moment.
    until(lambda: {p.pid for p in process.marked(mark)} == {parent.pid, child})
    assert process.marked(mark / "other") == []
    parent.signal(signal.SIGKILL)
    until(lambda: not parent.alive())
    assert [p.pid for p in process.marked(mark)] == [child], "an orphan is still found"
    process.stop(process.marked(mark), 1)
    assert process.marked(mark) == []


def test_stop_kills_what_ignores_sigterm(mark):
    stubborn = process.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], mark / "log", mark)
    until(lambda: "ready" in (mark / "log").read_text())
    began = time.monotonic()
    process.stop([stubborn], patience_s=0.3)
    assert not stubborn.alive()
    assert 0.3 <= time.monotonic() - began < 5


def test_a_later_process_with_the_same_pid_is_not_mistaken(mark):
    running = process.start(["sleep", "60"], mark / "log", mark)
    earlier = Process(running.pid, running.started - 1)
    assert running.alive()
    assert not earlier.alive()
    earlier.signal(signal.SIGKILL)
    assert running.alive()


def test_a_zombie_of_another_parent_is_dead(mark):
    child = subprocess.Popen(["true"])
    until(lambda: Process.of(child.pid) is None)
    assert child.wait() == 0


def test_death_while_waiting_shows_the_last_log_lines(mark):
    log = mark / "log"
    dying = process.start(["sh", "-c", "for i in $(seq 30); do echo line $i; done; echo no such flag >&2"], log, mark)
    with pytest.raises(ComponentDiedError) as caught:
        process.wait_until(lambda: False, "kube-thing", dying, log, 10)
    assert caught.value.log_lines[-2:] == ["line 30", "no such flag"]
    assert len(caught.value.log_lines) == 12
    assert "kube-thing ended while it was starting" in str(caught.value)
    assert "  | no such flag" in str(caught.value)


def test_not_ready_in_time_shows_the_log_as_well(mark):
    slow = process.start(["sh", "-c", "echo waiting for etcd; sleep 60"], mark / "log", mark)
    until(lambda: (mark / "log").read_text())
    with pytest.raises(ComponentDiedError, match=r"is not ready after 0 s(.|\n)*waiting for etcd"):
        process.wait_until(lambda: False, "kube-thing", slow, mark / "log", 0.2)


def test_a_missing_program_is_named(mark):
    with pytest.raises(LocalKubeError, match="/no/such/program cannot be started: No such file"):
        process.start(["/no/such/program"], mark / "log", mark)


def test_the_environment_is_cleaned_of_foreign_kubernetes_settings(mark, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    process.start(["env"], mark / "log", mark, path=[mark / "bin"])
    until(lambda: "PATH=" in (mark / "log").read_text())
    until(lambda: process.marked(mark) == [])
    lines = (mark / "log").read_text().splitlines()
    assert not [line for line in lines if line.startswith("KUBE")]
    assert any(line.startswith(f"PATH={mark / 'bin'}:") for line in lines)
