"""Flags and environment; every error names the flag."""

import pytest

from qwen_cached_serve import settings
from qwen_cached_serve.settings import OperatorSettings, SettingsError, load


def test_defaults_serve_the_whole_cluster_with_leader_election():
    made = load([], {})
    assert made == OperatorSettings()
    assert made.cluster_wide
    assert made.leader_election


def test_flags_win_over_the_environment():
    environ = {"QCS_LOG_LEVEL": "debug", "QCS_NAMESPACES": "a, b", "QCS_LEADER_ELECTION": "off", "QCS_WORKERS": "8"}
    made = load(["--log-level", "error"], environ)
    assert (made.log_level, made.namespaces, made.leader_election, made.workers) == ("error", ("a", "b"), False, 8)
    assert not made.cluster_wide


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--namespaces", "A_b"], "--namespaces: 'A_b' is not a namespace name"),
        (["--health-port", "70000"], "--health-port: 70000 is not a port"),
        (["--health-port", "x"], "--health-port: 'x' is not a whole number"),
        (["--metrics-port", "8081"], "--metrics-port: 8081 is the health port already"),
        (["--leader-election", "maybe"], "--leader-election: 'maybe' is neither true nor false"),
        (["--workers", "0"], "--workers: 0 is out of range"),
        (["--resync-seconds", "1"], "--resync-seconds: 1 is too short"),
        (["--watch-behind-seconds", "9"], "--watch-behind-seconds: 9 is too short; give 10 or more, or 0"),
    ],
)
def test_errors_name_the_flag_and_the_remedy(argv, words):
    with pytest.raises(SettingsError, match=words):
        load(argv, {})


def test_a_watch_may_be_behind_for_ever_where_that_is_asked_for():
    assert load(["--watch-behind-seconds", "0"], {}).watch_behind_seconds == 0
    assert load(["--watch-behind-seconds", "10"], {}).watch_behind_seconds == 10


def test_a_wrong_choice_in_the_environment_is_refused_too():
    with pytest.raises(SettingsError, match="--log-level: 'loud' is not one of"):
        load([], {"QCS_LOG_LEVEL": "loud"})


def test_two_processes_are_two_candidates():
    made = OperatorSettings()
    assert settings.identity(made) != settings.identity(made)
    assert settings.identity(OperatorSettings(identity="me")) == "me"
