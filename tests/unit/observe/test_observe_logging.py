"""Log lines: one JSON object each, whoever writes them."""

import io
import json
import logging

import pytest
import structlog

from qwen_cached_serve.observe.logging import configure


@pytest.fixture
def stream():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    out = io.StringIO()
    yield out
    root.handlers[:], root.level = before
    structlog.reset_defaults()


def lines(out):
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_own_and_foreign_lines_have_the_same_shape(stream):
    configure("info", "json", stream)
    with structlog.contextvars.bound_contextvars(namespace="ns", name="q"):
        structlog.get_logger("ours").info("reconciled", duration=0.1)
        logging.getLogger("kopf.reactor").warning("watch of %s ended", "pods")
    ours, theirs = lines(stream)
    assert (ours["event"], ours["duration"], ours["namespace"]) == ("reconciled", 0.1, "ns")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("watch of pods ended", "warning", "kopf.reactor")
    assert set(ours) >= {"ts", "level", "logger"}
    assert set(theirs) >= {"ts", "level", "logger", "name"}


def test_an_exception_stays_on_one_line(stream):
    configure("info", "json", stream)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        structlog.get_logger().exception("failed")
    [line] = lines(stream)
    assert "ValueError" in line["exception"]


def test_object_of_a_kopf_line_is_named(stream):
    configure("info", "json", stream)
    record = {"k8s_ref": {"kind": "Pod", "namespace": "a", "name": "b"}}
    logging.getLogger("kopf.x").warning("odd", extra=record)
    [line] = lines(stream)
    assert (line["kind"], line["namespace"], line["name"]) == ("Pod", "a", "b")


def test_level_and_noise(stream):
    configure("warning", "json", stream)
    structlog.get_logger().info("no")
    logging.getLogger("aiohttp.access").info("no")
    structlog.get_logger().warning("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


def test_console_is_for_people(stream):
    configure("info", "console", stream)
    structlog.get_logger().info("hello", a=1)
    assert "hello" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize(("level", "form"), [("loud", "json"), ("info", "xml")])
def test_unknown_choices_are_refused(level, form):
    with pytest.raises(ValueError, match="must be one of"):
        configure(level, form)
