"""The order of the probe's methods, and the dry start with a fake engine that says what real ones said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qwen_cached_serve.inpod import dry_start
from qwen_cached_serve.inpod.dry_start import dry_start_argv
from qwen_cached_serve.inpod.facts import EngineSettings, ServeSettings, Versions, dumps
from qwen_cached_serve.inpod.groundwork import Groundwork
from qwen_cached_serve.inpod.message import CompactReport, ProbeFailure, read
from qwen_cached_serve.inpod.probe import FALLS_THROUGH, METHODS
from qwen_cached_serve.inpod.profiles import load_profiles
from tests.unit.inpod.pod_folder import PodFolder, wait_for

FIXTURES = Path(__file__).parents[1] / "core/fixtures/engine-logs"
METRICS = Path(__file__).parent / "fixtures/cache-config-info.txt"

FAKE_CONSTRUCT = """
import os, signal
from pathlib import Path
from .refusal import Refusal

def find_report(settings):
    mode = Path(__file__).with_name("mode").read_text()
    Path(__file__).with_name("construct-was-tried").touch()
    if mode == "drift":
        raise AttributeError("module 'vllm' has no attribute 'x'")
    if mode == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    raise Refusal(mode, "no", "hint")
"""

FAKE_VLLM = """
# A fake of `vllm serve`: prints a recorded log, then stays like an engine that has more to do.
import http.server, json, os, pathlib, signal, sys, tempfile, threading, time
home = pathlib.Path({home!r})
(home / "argv.json").write_text(json.dumps(sys.argv[1:]))
(home / "environ.json").write_text(json.dumps(dict(os.environ)))
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a worker that hangs in a driver
    (home / "worker").write_text(str(os.getpid()))
    time.sleep(3600)
tempfile.mkstemp()
print((home / "log").read_text(), flush=True)
if (home / "metrics").exists():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = (home / "metrics").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *_):
            pass
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = http.server.HTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
(home / "said").touch()
if (home / "ends").exists():
    os.kill(int((home / "worker").read_text()), signal.SIGKILL) if (home / "worker").exists() else None
    sys.exit(1)
time.sleep(3600)
"""


class DryPod(PodFolder):
    """A pod whose image holds a fake engine, and the files by which it is steered."""

    @property
    def steering(self) -> Path:
        return self.root / "steering"

    def says(self, log: str, *, metrics: str = "", ends: bool = False) -> None:
        (self.steering / "log").write_text(log, encoding="utf-8")
        if metrics:
            (self.steering / "metrics").write_text(metrics, encoding="utf-8")
        if ends:
            (self.steering / "ends").touch()

    def construct(self, mode: str) -> None:
        (self.layout.code / "qwen_cached_serve/inpod/mode").write_text(mode)

    @property
    def construct_was_tried(self) -> bool:
        return (self.layout.code / "qwen_cached_serve/inpod/construct-was-tried").exists()

    @property
    def engine_was_started(self) -> bool:
        return (self.steering / "argv.json").exists()

    def everything_is_gone(self) -> bool:
        worker = self.steering / "worker"
        return not worker.exists() or not Path(f"/proc/{worker.read_text()}").exists() or _is_zombie(worker.read_text())


def _is_zombie(pid: str) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


@pytest.fixture
def dry_settings(tmp_path: Path, cpu_settings: ServeSettings) -> ServeSettings:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["Qwen3_5ForConditionalGeneration"]}')
    return replace(cpu_settings, model=str(model), revision=None)


@pytest.fixture
def pod(tmp_path: Path, dry_settings: ServeSettings) -> Iterator[DryPod]:
    folder = DryPod(tmp_path / "pod", dry_settings)
    folder.steering.mkdir()
    (folder.root / "tmp").mkdir()
    folder.fake_program("vllm", FAKE_VLLM.replace("{home!r}", repr(str(folder.steering))))
    (folder.layout.code / "qwen_cached_serve/inpod/construct.py").write_text(FAKE_CONSTRUCT)
    for name, version in (("vllm", "0.32.0+cpu"), ("lmcache", "0.5.6")):
        (folder.layout.code / f"{name}-{version}.dist-info").mkdir()
        (folder.layout.code / f"{name}-{version}.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    folder.says((FIXTURES / "healthy-with-cache.log").read_text())
    folder.construct("drift")
    yield folder
    folder.close()


def probe(pod: DryPod) -> tuple[int, str]:
    return pod.run("probe", {"TMPDIR": str(pod.root / "tmp")}, seconds=300)


def failure(pod: DryPod) -> ProbeFailure:
    found = read(pod.layout.termination_log.read_text())
    assert isinstance(found, ProbeFailure)
    return found


def nothing_is_left(pod: DryPod) -> bool:
    return pod.everything_is_gone() and not list((pod.root / "tmp").iterdir())


@pytest.mark.parametrize("mode", ["drift", "crash"])
def test_where_construct_cannot_ask_the_engine_is_started_dry(pod: DryPod, mode: str) -> None:
    pod.construct(mode)
    status, said = probe(pod)
    assert status == 0, said
    report = pod.layout.report()
    assert (report.block_size, report.method, report.kernel_block_size) == (2144, "DryStart", 0)
    assert {"drift": "AttributeError: module 'vllm'", "crash": "SIGSEGV"}[mode] in report.construct_failure
    assert report.architecture == "Qwen3_5ForConditionalGeneration"
    assert (report.max_model_len, report.kv_cache_dtype, report.prefix_caching) == (16384, "auto", True)
    assert report.timings_seconds["dryStart"] >= 0
    assert "--chunk-size 2144" in " ".join(pod.layout.cache_server_argv())
    compact = read(pod.layout.termination_log.read_text())
    assert isinstance(compact, CompactReport)
    assert compact.method == "DryStart"
    assert compact.construct_failure[:10] == report.construct_failure[:10]
    assert "N = 2144 tokens by DryStart (kernel block unknown" in said
    assert nothing_is_left(pod)


def test_the_engine_gets_the_probes_arguments_random_weights_and_no_cache_server(pod: DryPod) -> None:
    assert probe(pod)[0] == 0
    argv = json.loads((pod.steering / "argv.json").read_text())
    assert argv[:2] == ["serve", pod.layout.settings().model]
    assert {"--enable-prefix-caching", "--enforce-eager", "--language-model-only"} <= set(argv)
    assert argv[argv.index("--load-format") + 1] == "dummy"
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert "--kv-transfer-config" not in argv


def test_the_users_logging_does_not_hide_n(pod: DryPod) -> None:
    more = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_LOGGING_CONFIG_PATH": "/x", "VLLM_CONFIGURE_LOGGING": "0"}
    assert pod.run("probe", {"TMPDIR": str(pod.root / "tmp"), **more}, seconds=300)[0] == 0
    environ = json.loads((pod.steering / "environ.json").read_text())
    assert (environ["VLLM_LOGGING_LEVEL"], environ["VLLM_CONFIGURE_LOGGING"]) == ("INFO", "1")
    assert "VLLM_LOGGING_CONFIG_PATH" not in environ
    assert environ["VLLM_NO_USAGE_STATS"] == "1"


def test_what_the_user_gave_for_serving_does_not_win(dry_settings: ServeSettings) -> None:
    engine = EngineSettings("GPU", extra_args=("--load-format", "runai"), unsupported_args=("--port", "8000"))
    settings = replace(dry_settings, engine=engine)
    work = Groundwork(settings, Versions("0.32.0", "0.5.6"), (), "", load_profiles())
    argv = dry_start_argv(work, 4711)
    assert len(argv) - 1 - argv[::-1].index("--port") > argv.index("8000")
    assert argv[len(argv) - argv[::-1].index("--port")] == "4711"
    assert argv[len(argv) - argv[::-1].index("--load-format")] == "dummy"


@pytest.mark.parametrize(
    "given",
    [
        ["--model-loader-extra-config", '{"concurrency":16}'],
        ['--model-loader-extra-config={"concurrency":16}'],
        ["--model_loader_extra_config", '{"concurrency":16,"a":1.5}'],
        ['--model_loader-extra_config={"concurrency":16,"a":1.5}'],
        ["--model-l", '{"concurrency":16}'],
        ["--model_loader_ex={}"],
        ["--model-loader-extra-config.concurrency", "16"],
        ["--model_loader_extra_config.concurrency=16", "--model-loader-extra-config.list+", "a,b"],
        ["--model-loader.a.b=1", "--model-loader-extra-config", "{}", "--model-loader-extra-config", '{"c":2}'],
    ],
)
@pytest.mark.parametrize("place", ["extra_args", "unsupported_args"])
def test_settings_of_the_real_weights_loader_are_left_out(
    dry_settings: ServeSettings, given: list[str], place: str
) -> None:
    """vLLM's loader of random weights raises ValueError for every extra setting."""
    around = ("--load-format", "runai_streamer", *given, "--model-impl", "vllm", "--seed=1")
    settings = replace(dry_settings, engine=EngineSettings("GPU", **{place: around}))
    plain = replace(dry_settings, engine=EngineSettings("GPU", **{place: (*around[:2], *around[-3:])}))
    made, without = (
        dry_start_argv(Groundwork(asked, Versions("0.32.0", "0.5.6"), (), "", load_profiles()), 4711)
        for asked in (settings, plain)
    )
    assert made == without
    assert "--seed=1" in made
    assert made[made.index("--model-impl") + 1] == "vllm"


SMI = "GPU-{0}, NVIDIA H100 80GB HBM3, 9.0, 580.95, 81559"


@pytest.mark.parametrize("method", ["DryStart", "Auto"])
def test_a_probe_that_sees_more_gpus_than_its_pod_asked_for_refuses(
    pod: DryPod, dry_settings: ServeSettings, method: str
) -> None:
    """A report of the first of them would have the engine, which sees them all, end with DeviceChanged for ever."""
    gpu = replace(dry_settings, engine=EngineSettings("GPU"), gpu_count=1, probe_method=method)
    pod.write(gpu)
    pod.fake_program("nvidia-smi", f"print({SMI.format('a')!r}); print({SMI.format('b')!r})")
    assert probe(pod)[0] == 1
    assert failure(pod).code == "DeviceNotExclusive"
    assert "sees 2 GPUs" in failure(pod).message
    assert failure(pod).hint.endswith("use another spec.engine.image.")
    assert not pod.engine_was_started


def test_the_engine_sees_what_the_probe_reported(pod: DryPod, dry_settings: ServeSettings) -> None:
    """Report and start compare like with like."""
    plain = replace(dry_settings.cache, enabled=False)
    settings = replace(dry_settings, engine=EngineSettings("GPU"), gpu_count=2, probe_method="DryStart", cache=plain)
    pod.write(settings)
    pod.says((FIXTURES / "healthy-with-cache.log").read_text().replace("device_config=cpu", "device_config=cuda"))
    pod.fake_program("nvidia-smi", f"print({SMI.format('a')!r}); print({SMI.format('b')!r})")
    status, said = probe(pod)
    assert status == 0, said
    assert [gpu.uuid for gpu in pod.layout.report().gpus] == ["GPU-a", "GPU-b"]
    pod.fake_program("vllm", "")
    status, said = pod.run("engine")
    assert status == 0, said


@pytest.mark.parametrize(("method", "construct", "dry"), [("Construct", True, False), ("DryStart", False, True)])
def test_a_method_asked_for_is_the_only_one_tried(
    pod: DryPod, dry_settings: ServeSettings, method: str, construct: bool, dry: bool
) -> None:
    pod.write(replace(dry_settings, probe_method=method))
    (pod.layout.code / "qwen_cached_serve/inpod/construct.py").write_text(FAKE_CONSTRUCT)
    status, said = probe(pod)
    assert (pod.construct_was_tried, pod.engine_was_started) == (construct, dry)
    if dry:
        assert status == 0, said
        assert pod.layout.report().construct_failure == ""
    else:
        assert (status, failure(pod).code) == (1, "ConstructFailed")
        assert "spec.blockSizeProbe.method" in failure(pod).hint


@pytest.mark.parametrize("code", ["DeviceMissing", "ImageTooOld", "BadEngineArgs", "OutOfMemory", "CheckpointMissing"])
def test_a_refusal_about_the_pod_is_final(pod: DryPod, code: str) -> None:
    pod.construct(code)
    assert probe(pod)[0] == 1
    assert failure(pod).code == code
    assert not pod.engine_was_started


def test_the_formula_is_no_method() -> None:
    assert {name for names in METHODS.values() for name in names} == {"Construct", "DryStart"}
    assert frozenset({"ConstructFailed"}) == FALLS_THROUGH


@pytest.mark.case("B05")
def test_b05_an_n_that_the_log_does_not_name_is_read_from_the_metrics(pod: DryPod) -> None:
    log = (FIXTURES / "healthy-with-cache.log").read_text()
    silent = "\n".join(line for line in log.splitlines() if "attention block size" not in line)
    pod.says(silent, metrics=METRICS.read_text())
    status, said = probe(pod)
    assert status == 0, said
    report = pod.layout.report()
    assert (report.block_size, report.mamba_cache_mode, report.mamba_ssm_cache_dtype) == (2144, "align", "bfloat16")
    assert nothing_is_left(pod)


@pytest.mark.parametrize(
    ("log", "code", "words"),
    [
        ("unknown-flag.log", "BadEngineArgs", "unrecognized arguments"),
        ("mamba-cache-mode-all.log", "BadEngineArgs", "invalid choice: 'all'"),
        ("invalid-cpu-kv-space-value.log", "BadEngineArgs", "invalid literal for int()"),
    ],
)
def test_an_engine_that_ends_without_n_is_quoted(pod: DryPod, log: str, code: str, words: str) -> None:
    pod.says((FIXTURES / log).read_text(), ends=True)
    status, said = probe(pod)
    assert status == 1, said
    assert failure(pod).code == code, failure(pod)
    assert words in failure(pod).message
    assert nothing_is_left(pod)


N_LINE = "Setting attention block size to {} tokens to ensure that attention page size is >= mamba page size.\n"
CONFIG = (FIXTURES / "healthy-with-cache.log").read_text().partition("Setting attention block size")[0]


@pytest.mark.parametrize(
    ("log", "code", "words"),
    [
        (CONFIG + N_LINE.format(784) + N_LINE.format(800), "BlockSizeNotFound", "784, 800"),
        (CONFIG.replace("device_config=cpu", "device_config=cuda") + N_LINE.format(784), "DeviceMissing", "cuda"),
        (CONFIG.replace("Qwen3_5For", "LlamaFor") + N_LINE.format(784), "ArchitectureNotSupported", "LlamaFor"),
        (
            CONFIG.replace("enable_prefix_caching=True", "enable_prefix_caching=False") + N_LINE.format(784),
            "PrefixCachingDisabled",
            "prefix caching off",
        ),
        (
            CONFIG
            + "Hybrid or mamba-based model detected without support for prefix caching: disabling.\n"
            + N_LINE.format(784),
            "PrefixCachingDisabled",
            "without support for prefix caching",
        ),
        (
            CONFIG
            + N_LINE.format(640)
            + "Padding mamba page size by 20.75% to ensure that mamba page size and attention page size are exactly "
            "equal.\n",
            "PagePadded",
            "20.75%",
        ),
    ],
)
def test_what_the_log_says_is_judged_like_what_construct_finds(pod: DryPod, log: str, code: str, words: str) -> None:
    pod.says(log)
    assert probe(pod)[0] == 1
    assert failure(pod).code == code
    assert words in failure(pod).message
    assert nothing_is_left(pod)


def test_the_time_limit_holds_for_all_methods_together(pod: DryPod, dry_settings: ServeSettings) -> None:
    pod.write(replace(dry_settings, probe_timeout_seconds=15))
    (pod.layout.code / "qwen_cached_serve/inpod/construct.py").write_text(FAKE_CONSTRUCT)
    pod.says("INFO loading\n")
    assert probe(pod)[0] == 1
    assert failure(pod).code == "Timeout"
    assert pod.engine_was_started
    assert "DryStart" in failure(pod).message
    wait_for(lambda: nothing_is_left(pod))


def test_sigterm_ends_the_dry_start_and_all_that_belongs_to_it(pod: DryPod) -> None:
    pod.says("INFO loading\n")
    (pod.layout.shm / "lmcache_kv_999999999_0").write_bytes(b"x")  # of an engine that had to be killed
    process = pod.start("probe", {"TMPDIR": str(pod.root / "tmp")})
    wait_for((pod.steering / "said").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 1
    assert failure(pod).code == "Terminated"
    assert nothing_is_left(pod)
    assert list(pod.layout.shm.iterdir()) == []
    assert list(pod.layout.state.iterdir()) == []


@pytest.mark.parametrize("moment", ["at once", "between", "twice"])
def test_sigterm_at_any_moment(pod: DryPod, moment: str, wait_until: Callable[..., None]) -> None:
    """Whenever it comes after the handler is there: one coded message, nothing left."""
    pod.says("INFO loading\n")
    process = pod.start("probe", {"TMPDIR": str(pod.root / "tmp")})
    wait_until(process.pid, moment)
    os.kill(process.pid, signal.SIGTERM)
    if moment == "twice":
        os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=60) == 1
    assert failure(pod).code == "Terminated"
    wait_for(lambda: nothing_is_left(pod))


@pytest.fixture
def wait_until(pod: DryPod) -> Callable[..., None]:
    """Wait for a moment of the probe's life, seen from outside."""

    def catches_sigterm(pid: int) -> bool:
        (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
        return bool(int(line.split()[1], 16) & 1 << (signal.SIGTERM - 1))

    def wait(pid: int, moment: str) -> None:
        wait_for(lambda: catches_sigterm(pid), every=0.001)
        if moment == "between":
            wait_for(lambda: pod.construct_was_tried, every=0.001)

    return wait


def test_an_unknown_method_names_the_field(pod: DryPod, dry_settings: ServeSettings) -> None:
    (pod.layout.code / "settings.json").write_text(dumps(replace(dry_settings, probe_method="Formula")))
    assert probe(pod)[0] == 1
    assert failure(pod).code == "SettingsInvalid"
    assert "spec.blockSizeProbe.method" in failure(pod).hint


def test_last_words_are_read_before_the_end_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may end while its log is still being read: the cause stands in its last line."""
    said = ["loading\n", "", "ValueError: the cause\n", None, "never read\n"]
    monkeypatch.setattr(dry_start, "_lines", lambda _stream: iter(said))
    monkeypatch.setattr(dry_start, "_ask_metrics", lambda _port: {})
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as engine:
        engine.wait()
        assert dry_start._follow(engine, 0) == ("loading\nValueError: the cause\n", {})


def test_a_process_in_a_group_of_its_own_is_ended_too(pod: DryPod) -> None:
    fake = FAKE_VLLM.replace("{home!r}", repr(str(pod.steering)))
    pod.fake_program("vllm", fake.replace("if os.fork() == 0:\n", "if os.fork() == 0:\n    os.setpgid(0, 0)\n"))
    assert probe(pod)[0] == 0
    assert pod.engine_was_started
    assert nothing_is_left(pod)


def test_a_full_disk_is_a_coded_answer(pod: DryPod) -> None:
    pod.layout.state.rmdir()
    pod.layout.state.touch()  # nothing can be written below it
    assert probe(pod)[0] == 1
    assert failure(pod).code == "Internal"
    assert "spec.pod.volumes" in failure(pod).hint
