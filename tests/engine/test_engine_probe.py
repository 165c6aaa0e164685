"""The probe in the real engine's environment: N, and the refusals in the engine's own words."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from qwen_cached_serve.inpod.facts import CacheSettings, ServeSettings, dump
from qwen_cached_serve.inpod.message import CompactReport, ProbeFailure, read
from tests.engine.engine_pod import EnginePod

pytestmark = pytest.mark.timeout(1800)

MakePod = Callable[[ServeSettings], EnginePod]


def refusal(pod: EnginePod) -> ProbeFailure:
    status, said = pod.run("probe", seconds=900)
    assert status == 1, said[-3000:]
    failure = read(pod.layout.termination_log.read_text())
    assert isinstance(failure, ProbeFailure), said[-3000:]
    assert said.splitlines()[-1].startswith(f"qcs probe: {failure.code}: ")
    assert list(pod.layout.state.iterdir()) == []
    return failure


def test_n_of_the_small_model(
    probe_pod: MakePod, tiny_settings: ServeSettings, timings: dict[str, float | str], tmp_path: Path
) -> None:
    pod = probe_pod(tiny_settings)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    status, said = pod.run("probe", {"TMPDIR": str(temporary)}, seconds=900)
    assert status == 0, said[-3000:]
    report = pod.layout.report()
    assert (report.block_size, report.kernel_block_size, report.page_padding_bytes) == (352, 352, 0)
    assert report.attention_backends == ("CPU_ATTN",)  # the language model's; a vision tower does not count
    assert report.architecture == "Qwen3_5ForConditionalGeneration"
    assert (report.mamba_cache_mode, report.mamba_ssm_cache_dtype) == ("align", "bfloat16")
    assert (report.max_model_len, report.prefix_caching, report.method) == (4096, True, "Construct")
    argv = pod.layout.engine_argv()
    assert argv[argv.index("--max-num-batched-tokens") + 1] == "703"
    server = pod.layout.cache_server_argv()
    assert server[server.index("--chunk-size") + 1] == "352"
    compact = read(pod.layout.termination_log.read_text())
    assert isinstance(compact, CompactReport)
    assert compact.block_size == 352
    assert list(temporary.iterdir()) == []
    timings.update({f"probe_{name}_seconds": seconds for name, seconds in report.timings_seconds.items()})


def test_the_parsers_own_words(probe_pod: MakePod, tiny_settings: ServeSettings) -> None:
    engine = replace(tiny_settings.engine, unsupported_args=("--mamba-cache-mode", "all"))
    failure = refusal(probe_pod(replace(tiny_settings, engine=engine)))
    assert failure.code == "BadEngineArgs"
    assert "argument --mamba-cache-mode: invalid choice: 'all'" in failure.message


JUDGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from qwen_cached_serve.inpod.construct import find_report
from qwen_cached_serve.inpod.facts import ServeSettings, dump, load
from qwen_cached_serve.inpod.refusal import Refusal

answers = []
for data in json.load(open(sys.argv[2])):
    try:
        answers.append({"report": dump(find_report(load(ServeSettings, data)))})
    except Refusal as refusal:
        answers.append({"code": refusal.code, "message": refusal.message, "hint": refusal.hint})
print("ANSWER" + json.dumps(answers))
"""


@pytest.fixture(scope="module")
def judged(
    tmp_path_factory: pytest.TempPathFactory, engine_python: str, tiny_settings: ServeSettings, model_08b: Path
) -> dict[str, Any]:
    """Several settings, judged by the probe's own code in one process: vLLM is imported once."""
    folder = tmp_path_factory.mktemp("judged")
    llama = folder / "llama"
    llama.mkdir()
    (llama / "config.json").write_text(json.dumps(LLAMA))
    engine = tiny_settings.engine
    own = replace(engine, block_size=None, mamba_ssm_cache_dtype=None)
    asked = {
        "padded": replace(tiny_settings, model=str(model_08b), engine=own),
        "padded without the cache": replace(
            tiny_settings, model=str(model_08b), engine=own, cache=CacheSettings(enabled=False)
        ),
        "four ranks": replace(
            tiny_settings,
            model=str(model_08b),
            engine=replace(own, tensor_parallel_size=4),
            cache=CacheSettings(enabled=False),
        ),
        "prefix caching off": replace(
            tiny_settings, engine=replace(engine, unsupported_args=("--no-enable-prefix-caching",))
        ),
        "too many sequences": replace(
            tiny_settings,
            engine=replace(engine, max_num_seqs=None, unsupported_args=("--max-num-seqs", "1000000")),
        ),
        "another family": replace(tiny_settings, model=str(llama), engine=own),
        "an unknown backend": replace(tiny_settings, engine=replace(engine, attention_backend="NOT_ONE")),
        "no such model": replace(tiny_settings, model=str(folder / "none")),
        "a chunk above L1": replace(tiny_settings, cache=replace(tiny_settings.cache, l1_size_bytes=1 << 20)),
        "a GPU": replace(tiny_settings, engine=replace(engine, accelerator="GPU"), gpu_count=1),
    }
    pod = EnginePod(folder / "pod", tiny_settings, engine_python)
    questions = folder / "questions.json"
    questions.write_text(json.dumps([dump(settings) for settings in asked.values()]))
    done = subprocess.run(
        [engine_python, "-c", JUDGE, str(pod.layout.code), str(questions)],
        env=pod.environ(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    pod.close()
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    return dict(zip(asked, json.loads(line.removeprefix("ANSWER")), strict=True))


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 256,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_n_of_the_geometry_of_08b(judged: dict[str, Any]) -> None:
    report = judged["padded without the cache"]["report"]
    assert report["block_size"] == 640
    assert report["mamba_ssm_cache_dtype"] == "float32"
    # 640 tokens x 2,048 bytes of attention against a state of 1,085,440 bytes: padded by 20.75 %.
    assert report["page_padding_bytes"] == 640 * 2048 - 1_085_440


def test_n_of_four_ranks_is_found_by_one_process(judged: dict[str, Any]) -> None:
    """A quarter of the state, half of the attention (two KV heads cannot be split further): 272 tokens, to 3 x 128."""
    assert judged["four ranks"]["report"]["block_size"] == 384


def test_padded_pages_are_refused_with_the_cache(judged: dict[str, Any]) -> None:
    answer = judged["padded"]
    assert answer["code"] == "PagePadded"
    assert "225280 bytes" in answer["message"]
    assert "spec.cache.mode" in answer["hint"]


@pytest.mark.case("B06")
def test_b06_prefix_caching_that_is_off(judged: dict[str, Any]) -> None:
    answer = judged["prefix caching off"]
    assert answer["code"] == "PrefixCachingDisabled"
    assert "spec.cache.mode to Disabled" in answer["hint"]


def test_what_only_the_whole_command_line_shows(judged: dict[str, Any]) -> None:
    """More sequences than a step holds: vLLM's own check of the final arguments is asked too."""
    answer = judged["too many sequences"]
    assert answer["code"] == "BadEngineArgs"
    assert "max_num_seqs" in answer["message"]


def test_other_refusals(judged: dict[str, Any]) -> None:
    assert judged["another family"]["code"] == "ArchitectureNotSupported"
    assert "LlamaForCausalLM" in judged["another family"]["message"]
    assert judged["an unknown backend"]["code"] == "BadEngineArgs"
    assert "NOT_ONE" in judged["an unknown backend"]["message"]
    assert judged["no such model"]["code"] == "CheckpointMissing"
    assert judged["a GPU"]["code"] == "DeviceMissing"


def test_a_chunk_that_never_fits_into_l1(judged: dict[str, Any]) -> None:
    """Four layers, each with a page of 352 tokens x 1,152 bytes."""
    answer = judged["a chunk above L1"]
    assert answer["code"] == "ChunkLargerThanL1"
    assert f"takes {4 * 352 * 1152} bytes" in answer["message"]
    assert "spec.cache.l1.size" in answer["hint"]


class FakeHub(ThreadingHTTPServer):
    """A fake of the hub's model API: one public, one gated and one unknown model."""

    daemon_threads = True


class _FakeHubHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers: dict[str, tuple[int, dict[str, str]]] = {
            "/api/models/org/open/revision/main": (200, {}),
            "/api/models/org/gated/revision/main": (403, {"X-Error-Code": "GatedRepo"}),
            "/api/models/org/open/revision/none": (404, {"X-Error-Code": "RevisionNotFound"}),
            "/api/models/org/hidden/revision/main": (401, {"X-Error-Code": "RepoNotFound"}),
            "/api/models/org/none/revision/main": (404, {"X-Error-Code": "RepoNotFound"}),
        }
        status, headers = answers.get(self.path.partition("?")[0], (500, {}))
        body = json.dumps({"id": "org/open", "modelId": "org/open", "sha": "c" * 40}).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def fake_hub() -> Iterator[str]:
    with FakeHub(("127.0.0.1", 0), _FakeHubHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def resolve(pod: EnginePod, model: str, revision: str, **environ: str) -> str:
    """`checkpoint.resolve` in the engine's interpreter: the commit, or the refusal's code."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from qwen_cached_serve.inpod.checkpoint import resolve\n"
        "from qwen_cached_serve.inpod.refusal import Refusal\n"
        "try: print(resolve(sys.argv[2], sys.argv[3]))\n"
        "except Refusal as refusal: print(refusal.code)\n"
    )
    command = [pod.python, "-c", script, str(pod.layout.code), model, revision]
    done = subprocess.run(command, env=pod.environ(environ), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("model", "revision", "outcome"),
    [
        ("org/open", "main", "c" * 40),
        ("org/open", "none", "CheckpointMissing"),
        ("org/gated", "main", "ModelAccessDenied"),
        ("org/hidden", "main", "ModelAccessDenied"),
        ("org/none", "main", "CheckpointMissing"),
    ],
)
def test_a_hub_id_is_resolved_to_a_commit(
    probe_pod: MakePod, tiny_settings: ServeSettings, fake_hub: str, model: str, revision: str, outcome: str
) -> None:
    pod = probe_pod(tiny_settings)
    assert resolve(pod, model, revision, HF_ENDPOINT=fake_hub, HF_HUB_OFFLINE="0") == outcome


def test_offline_only_what_was_downloaded_serves(
    probe_pod: MakePod, tiny_settings: ServeSettings, tmp_path: Path
) -> None:
    pod = probe_pod(tiny_settings)
    home = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert resolve(pod, "org/open", "main", **home) == "ModelNotAvailableOffline"
    folder = tmp_path / "hub" / "models--org--open"
    (folder / "snapshots" / ("d" * 40)).mkdir(parents=True)
    (folder / "snapshots" / ("d" * 40) / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("d" * 40)
    assert resolve(pod, "org/open", "main", **home) == "d" * 40
    assert resolve(pod, "org/open", "d" * 40, **home) == "d" * 40
    unreachable = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    assert resolve(pod, "org/open", "main", **unreachable) == "d" * 40
    assert resolve(pod, "org/other", "main", **unreachable) == "ModelNotAvailableOffline"
