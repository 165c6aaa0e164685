import stat
import threading

import pytest

from localkube import paths, state
from localkube.errors import LocalKubeError
from localkube.state import Component, Options, State


def test_state_survives_saving_and_is_private(tmp_path):
    options = Options(name="a", simulated_nodes=3, stages=("/x.yaml", "/y.yaml"))
    saved = State(
        tmp_path, options, "up", "10.99.0.1", {"etcd": 1}, {"admin": "t"}, 0, {"etcd": Component(["etcd"], 5, 9)}
    )
    saved.save()
    assert state.load(tmp_path) == saved
    assert stat.S_IMODE((tmp_path / state.FILE).stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [state.FILE]
    assert state.load(tmp_path / "missing") is None


def test_differences_name_the_options():
    found = Options(simulated_nodes=2, node=True).differences(Options(node=True, version="1.34"))
    assert found == ["version ('1.36', not '1.34')", "simulated_nodes (2, not 0)"]


def test_one_command_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "_ENDING_SECONDS", 0.1)
    folder = tmp_path / "c"
    with state.exclusive(folder):
        with (
            pytest.raises(LocalKubeError, match="Another localkube command works on the cluster"),
            state.exclusive(folder),
        ):
            pass
        folder.rmdir()
    with state.exclusive(folder):
        assert folder.is_dir()


def test_a_command_waits_for_the_rest_of_a_killed_one(tmp_path):
    """A killed command's child holds its lock between fork and exec: seen in CI as a refused `down`."""
    held, order = threading.Event(), []

    def rest() -> None:
        with state.exclusive(tmp_path / "c"):
            held.set()
            order.append("rest")
            threading.Event().wait(0.3)
            order.append("ended")

    thread = threading.Thread(target=rest)
    thread.start()
    assert held.wait(10)
    with state.exclusive(tmp_path / "c"):
        order.append("down")
    thread.join()
    assert order == ["rest", "ended", "down"]


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a" * 31, "../x", "a.b"])
def test_unusable_names_are_refused(name):
    with pytest.raises(LocalKubeError, match=r"is not usable\. Use 1 to 30 lower-case"):
        paths.cluster_folder(name)


def test_homes(monkeypatch):
    monkeypatch.delenv("LOCALKUBE_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert str(paths.cluster_folder("a")) == "/s/localkube/a"
    assert str(paths.cache_home()) == "/c/localkube"
