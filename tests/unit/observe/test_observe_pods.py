"""Reading a pod's programs over the network, against real HTTP servers with answers recorded from vLLM and LMCache."""

from pathlib import Path

import pytest
from aiohttp import web

from qwen_cached_serve.observe.pods import PodReader

FIXTURES = Path(__file__).parent / "fixtures"
STATUS = (FIXTURES / "status-registered.json").read_text()
METRICS = (FIXTURES / "engine-cache-config.txt").read_text()


class Programs:
    """Engine and relay on free ports of 127.0.0.1; a test changes their answers."""

    def __init__(self):
        self.metrics, self.status = (200, METRICS), (200, STATUS)
        self.runners = []
        self.ports = []

    async def start(self):
        for path, name in (("/metrics", "metrics"), ("/status", "status")):
            app = web.Application()

            async def answer(_request, name=name):
                status, text = getattr(self, name)
                headers = {"Location": "http://127.0.0.1:1/"} if status == 302 else {}
                return web.Response(status=status, text=text, headers=headers)

            app.router.add_get(path, answer)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.runners.append(runner)
            self.ports.append(runner.addresses[0][1])

    async def stop(self):
        for runner in self.runners:
            await runner.cleanup()


@pytest.fixture
async def programs():
    made = Programs()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def reader(programs):
    made = PodReader(engine_port=programs.ports[0], relay_port=programs.ports[1], timeout=2)
    yield made
    await made.close()


@pytest.mark.parametrize("status", ["[" * 100_000, "{", "[]", '{"chunk_size": "x"}'])
async def test_an_answer_that_is_no_status_is_not_known(programs, reader, status):
    programs.status = 200, status
    assert await reader.read("127.0.0.1") is None


async def test_labels_that_are_none_end_nothing(programs, reader):
    """Also a word of half a megabyte without an end: looked at once, not from each of its characters."""
    programs.metrics = 200, f"vllm:cache_config_info{{{'a' * 500_000}}} 1.0\n"
    assert (await reader.read("127.0.0.1")).engine_block_size is None
    programs.metrics = 200, f'vllm:cache_config_info{{block_size="{"9" * 5000}"}} 1.0\n'
    assert (await reader.read("127.0.0.1")).engine_block_size is None


async def test_recorded_answers_are_understood(programs, reader):
    seen = await reader.read("127.0.0.1")
    assert seen.registered is True
    assert seen.engine_block_size == 2144
    assert seen.server_block_sizes == (2144,)
    assert seen.server_chunk_size == 2144


async def test_a_server_without_engines_is_told_apart(programs, reader):
    programs.status = (200, '{"chunk_size": 544, "registered_gpu_ids": [], "cache_context_meta": {}}')
    seen = await reader.read("127.0.0.1")
    assert seen.registered is False
    assert seen.server_block_sizes == ()


@pytest.mark.parametrize(
    "change",
    [
        {"status": (503, "")},
        {"status": (200, "no json")},
        {"status": (200, "[]")},
        {"status": (302, "")},
        {"metrics": (404, "")},
        {"metrics": (200, "x" * (9 << 20))},
    ],
    ids=["refused", "no-json", "not-a-status", "redirect", "no-metrics", "endless"],
)
async def test_whatever_goes_wrong_is_unknown(programs, reader, change):
    for name, value in change.items():
        setattr(programs, name, value)
    assert await reader.read("127.0.0.1") is None


async def test_nobody_there_is_unknown():
    reader = PodReader(engine_port=9, relay_port=9, timeout=1)
    assert await reader.read("127.0.0.1") is None
    assert await reader.read("::1") is None
    await reader.close()
