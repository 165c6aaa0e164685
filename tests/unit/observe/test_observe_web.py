"""The endpoints, over real sockets."""

import aiohttp
import pytest

from qwen_cached_serve.observe.metrics import Metrics
from qwen_cached_serve.observe.web import WebServer


@pytest.fixture
async def server():
    state = {"alive": "", "ready": "not yet: the watches are starting"}
    made = WebServer(
        host="127.0.0.1",
        health_port=0,
        metrics_port=0,
        metrics=Metrics(),
        alive=lambda: state["alive"],
        ready=lambda: state["ready"],
    )
    await made.start()
    yield made, state
    await made.stop()


async def get(port, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text(), answer.content_type


async def test_health_follows_the_checks_and_says_why(server):
    made, state = server
    assert (await get(made.health_port, "/healthz"))[:2] == (200, "ok\n")
    assert (await get(made.health_port, "/readyz"))[:2] == (503, "not yet: the watches are starting\n")
    state["ready"] = ""
    assert (await get(made.health_port, "/readyz"))[0] == 200
    state["alive"] = "worker-1: boom"
    assert (await get(made.health_port, "/healthz"))[:2] == (503, "worker-1: boom\n")


async def test_metrics_are_on_their_own_port(server):
    made, _ = server
    status, text, kind = await get(made.metrics_port, "/metrics")
    assert (status, kind) == (200, "text/plain")
    assert "controller_runtime_reconcile_total" in text
    assert (await get(made.metrics_port, "/healthz"))[0] == 404
    assert (await get(made.health_port, "/metrics"))[0] == 404


async def test_a_taken_port_is_an_error(server):
    made, _ = server
    other = WebServer(
        host="127.0.0.1",
        health_port=made.health_port,
        metrics_port=0,
        metrics=Metrics(),
        alive=lambda: "",
        ready=lambda: "",
    )
    with pytest.raises(OSError, match=str(made.health_port)):
        await other.start()
    await other.stop()
