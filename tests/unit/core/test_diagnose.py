"""Each known cause by its text, as the programs print it; what nobody knows stays unknown."""

from pathlib import Path

import pytest
import yaml

from qwen_cached_serve.core.diagnose import classified, decisive, diagnose_log, observe_log
from qwen_cached_serve.core.failures import FAILURES, OBSERVATIONS, RULES

FIXTURES = Path(__file__).parent / "fixtures"
LOGS = FIXTURES / "engine-logs"
ROWS = yaml.safe_load((FIXTURES / "causes.yaml").read_text())


def _row(number, row):
    marks = [pytest.mark.case(row["case"])] if "case" in row else []
    return pytest.param(row, marks=marks, id=f"{row.get('case', 'row')}-{number}-{row['code']}")


@pytest.mark.parametrize(
    ("name", "code", "numbers", "field"),
    [
        (
            "batched-tokens-below-n",
            "TokensPerStepOutOfRange",
            {"maxNumBatchedTokens": 1024, "blockSize": 2144},
            "spec.engine.vllm.maxNumBatchedTokens",
        ),
        (
            "batched-tokens-default-below-n",
            "TokensPerStepOutOfRange",
            {"maxNumBatchedTokens": 2048, "blockSize": 2144},
            "spec.engine.vllm.maxNumBatchedTokens",
        ),
        (
            "chunk-size-not-a-multiple-of-n",
            "ChunkSizeMismatch",
            {"chunkSize": 256, "blockSize": 2144},
            "spec.unsupported.cacheServerArgs",
        ),
        ("invalid-cpu-kv-space-value", "CPUCacheSpaceInvalid", {}, "spec.engine.env"),
        # The operator derives --mamba-cache-mode, so the image does not fit; the other flag is nobody's but the user's.
        ("mamba-cache-mode-all", "UnsupportedFlag", {}, "spec.engine.image"),
        ("unknown-flag", "UnsupportedFlag", {}, "spec.engine.extraArgs"),
    ],
)
def test_recorded_refusals(name, code, numbers, field):
    text = (LOGS / f"{name}.log").read_text()
    diagnosis = diagnose_log(text)
    assert (diagnosis.code, dict(diagnosis.numbers), diagnosis.field) == (code, numbers, field)
    quoted = text.splitlines()[diagnosis.line - 1]
    assert diagnosis.excerpt[:60] in " ".join(quoted.split())


@pytest.mark.parametrize("row", [_row(number, row) for number, row in enumerate(ROWS)])
def test_causes_are_told_apart(row):
    diagnosis = diagnose_log(row["text"])
    assert (diagnosis.code, dict(diagnosis.numbers)) == (row["code"], row["numbers"])
    assert diagnosis.field == row.get("field", diagnosis.field)
    assert diagnosis.hint
    assert diagnosis.message
    assert "{" not in diagnosis.message + diagnosis.hint
    # Figures that the engine names are in the sentence too, not only for programs.
    shown = {value for name, value in row["numbers"].items() if not name.endswith("Bytes")}
    if diagnosis.message != FAILURES[diagnosis.code].meaning:
        assert any(str(value) in diagnosis.sentence for value in shown) or not shown


@pytest.mark.parametrize("row", [_row(number, row) for number, row in enumerate(ROWS)])
def test_the_decisive_part_says_what_the_whole_says(row):
    noise = "(APIServer pid=1) INFO 11-29 15:49:10 [model.py:2152] Using max model len 16384\n" * 30
    whole = noise + row["text"] + "\n" + noise
    kept, found = decisive(whole), diagnose_log(whole)
    assert len(kept) <= 1500
    again = diagnose_log(kept)
    assert (again.code, again.numbers, again.message, again.field) == (
        found.code, found.numbers, found.message, found.field
    )  # fmt: skip


def test_every_rule_has_a_row():
    """A rule that no row matches would be untested, and a class without rule or row a promise."""
    unmatched = [rule for rule in RULES if not any(rule.pattern.search(row["text"]) for row in ROWS)]
    assert [(rule.code, rule.pattern.pattern) for rule in unmatched] == []
    assert {rule.code for rule in (*RULES, *OBSERVATIONS)} <= FAILURES.keys()


@pytest.mark.case("B28")
def test_memory_is_never_blamed_for_a_size_mismatch():
    for row in ROWS:
        if row.get("case") == "B28":
            assert "Memory" not in diagnose_log(row["text"]).code


@pytest.mark.case("B13")
@pytest.mark.case("B19")
def test_bad_advice_of_the_engine_is_not_passed_on():
    serialises = next(row["text"] for row in ROWS if row.get("case") == "B13")
    assert "--max-num-batched-tokens 784" in serialises
    assert "TwoBlocksMinusOne" in diagnose_log(serialises).hint
    breaks_hybrids = next(row["text"] for row in ROWS if row.get("case") == "B19")
    assert "Do not disable" in diagnose_log(breaks_hybrids).hint


@pytest.mark.case("B24")
def test_a_context_that_does_not_fit_is_no_matter_of_sequences():
    for row in ROWS:
        if row.get("case") == "B24":
            diagnosis = diagnose_log(row["text"])
            assert diagnosis.field != "spec.engine.vllm.maxNumSeqs"
            assert diagnosis.needs_a_person


@pytest.mark.case("B25")
def test_a_busy_gpu_is_no_fault_of_the_user_at_first_sight():
    assert not classified("GPUMemoryBusy").needs_a_person


@pytest.mark.case("B26")
def test_the_cause_counts_and_not_what_comes_of_it():
    oom = (
        "(Worker_TP1 pid=9) ERROR 11-02 10:00:00 [x.py:1] RuntimeError: NCCL error: remote process exited\n"
        "(Worker_TP0 pid=8) ERROR 11-02 10:00:01 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to "
        "allocate 2.00 GiB.\n"
        "(EngineCore pid=7) ERROR 11-02 10:00:02 [core.py:1510] EngineCore failed to start.\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {'EngineCore': 1}\n"
    )
    assert diagnose_log(oom).code == "GPUMemoryExhausted"
    assert diagnose_log(oom.split("\n", 2)[2]).code == "EngineStartFailed"


def test_interleaved_processes_are_read_apart():
    wrapped = (
        "(EngineCore_DP0 pid=7) ERROR 11-02 10:00:00 [core.py:1] ValueError: To serve at least one request with the\r\n"
        "(EngineCore_DP1 pid=8) ERROR 11-02 10:00:00 [core.py:1] ValueError: To serve at least one request with the\r\n"
        "(EngineCore_DP0 pid=7) ERROR 11-02 10:00:00 [core.py:1] model's max seq len (9000), (2.0 GiB KV cache is "
        "needed, which is larger than the available KV cache\r\n"
        "(EngineCore_DP1 pid=8) ERROR 11-02 10:00:00 [core.py:1] model's max seq len (9000), (2.0 GiB KV cache is "
        "needed, which is larger than the available KV cache\r\n"
        "(EngineCore_DP0 pid=7) ERROR 11-02 10:00:00 [core.py:1] memory (1.0 GiB). Based on the available memory, the "
        "estimated maximum model length is 4000.\r\n"
    )
    assert dict(diagnose_log(wrapped).numbers)["fittingModelLen"] == 4000


def test_colours_prefixes_and_timestamps_change_nothing():
    text = "max_num_seqs (1024) exceeds available Mamba cache blocks (614)."
    for line in (
        f"\x1b[0;36m(EngineCore pid=187)\x1b[0;0m ERROR 08-14 08:34:03 [core.py:1349] ValueError: {text}",
        f"[pod/q-1/engine] (EngineCore pid=187) ValueError: {text}",
        f"2026-11-29T15:49:09.123456789Z stderr F (EngineCore pid=187) \x1b[31mValueError: {text}\x1b[0m",
        f"engine-1  | (Worker_TP0_EP0 pid=187) ValueError: {text}",
    ):
        quiet = line.split("(", 1)[0] + "(APIServer pid=1) INFO 08-14 08:34:03 [a.py:1] GatedRepoError: no\n"
        assert dict(diagnose_log(quiet + line).numbers) == {"maxNumSeqs": 1024, "availableBlocks": 614}


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=1) WARNING 11-29 15:11:55 [base.py:380] GatedRepoError: 401 Client Error, trying again",
        "[2026-11-29 15:49:10,553] LMCache WARNING: LMCache server did not respond within 30s (a.py:1:b)",
        "[W1129 15:49:31.211647024 utils.cpp:68] Warning: CUDA out of memory",
        "'[Errno -3] Temporary failure in name resolution' thrown while requesting HEAD https://hub.example/x",
        "WARNING:huggingface_hub.utils._http:429 Client Error: Too Many Requests for url",
        "/a/b.py:12: UserWarning: CUDA error: no kernel image is available for execution on the device",
        "host:12:34 [0] NCCL INFO NCCL error handling is on",
    ],
)
def test_a_text_in_a_warning_line_is_no_cause(line):
    assert diagnose_log(line) is None


def test_source_text_in_a_traceback_is_no_cause():
    text = (
        "Traceback (most recent call last):\n"
        '  File "/x/a.py", line 3, in f\n'
        '    raise GatedRepoError("Address already in use")\n'
        "    ^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "ZeroDivisionError: division by zero\n"
    )
    assert diagnose_log(text).code == "Unknown"


def test_an_unknown_text_is_not_guessed():
    diagnosis = diagnose_log(
        "(EngineCore pid=7) ERROR 11-02 10:00:02 [core.py:1510] EngineCore failed to start.\n"
        "(EngineCore pid=7) ERROR 11-02 10:00:02 [core.py:1510] ZeroDivisionError: division by zero\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
        "/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: 1 leaked\n"
    )
    assert (diagnosis.code, diagnosis.excerpt) == ("Unknown", "ZeroDivisionError: division by zero")
    assert "ZeroDivisionError: division by zero" in diagnosis.message
    assert not diagnosis.needs_a_person
    for silent in (
        "",
        "\n\n",
        "Loading safetensors checkpoint shards: 100%",
        "INFO:     Application startup complete.",
    ):
        assert diagnose_log(silent) is None


def test_a_quoted_line_has_no_secret():
    token = "hf_" + "a1B2c3D4e5" * 3
    diagnosis = diagnose_log(
        f"RuntimeError: request with Authorization: Bearer {token} failed at https://me:pw@hub.example/"
    )
    assert diagnosis.code == "Unknown"
    assert token not in diagnosis.sentence + diagnosis.excerpt
    assert "me:pw" not in diagnosis.sentence
    flag = diagnose_log(f"vllm: error: unrecognized arguments: --hf_tokn={token} --api-key {token}")
    assert token not in flag.sentence + flag.excerpt


@pytest.mark.case("B27")
def test_whose_flag_it_is_decides_about_the_field():
    derived = diagnose_log("vllm: error: unrecognized arguments: --mamba-cache-mode align")
    own = diagnose_log("vllm: error: unrecognized arguments: --my-flag=1")
    assert (derived.field, own.field) == ("spec.engine.image", "spec.engine.extraArgs")
    assert "--mamba-cache-mode" in derived.message


def test_the_cache_server_has_fields_of_its_own():
    text = "MemoryError"
    assert diagnose_log(text).field == "spec.engine.resources.limits.memory"
    assert diagnose_log(text, "cache-server").field == "spec.cache.resources.limits.memory"


def test_of_several_lives_the_last_one_that_failed_counts():
    start = "(APIServer pid=1) INFO 11-29 15:49:10 [api_utils.py:286] non-default args: {}\n"
    first = start + "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).\n"
    second = start + "torch.OutOfMemoryError: CUDA out of memory\n"
    healthy = start + "(APIServer pid=1) INFO 11-29 15:49:30 [launcher.py:1] Application startup complete.\n"
    assert diagnose_log(first + second).code == "GPUMemoryExhausted"
    assert diagnose_log(first + healthy).code == "MaxNumSeqsTooLarge"


def test_the_pods_own_refusal_is_the_cause():
    text = (
        "RuntimeError: CUDA error: out of memory\n"
        "qcs engine: DeviceChanged: this container sees GPU-2, the probe saw GPU-1 Delete the pod.\n"
    )
    assert diagnose_log(text).code == "DeviceChanged"


@pytest.mark.case("B06")
def test_what_keeps_a_running_engine_from_caching_is_found_only_without_a_failure():
    old = (
        "(APIServer pid=1) INFO 02-12 09:46:30 [config.py:302] Hybrid or mamba-based model detected without support "
        "for prefix caching: disabling.\n"
    )
    assert diagnose_log(old) is None
    assert observe_log(old).code == "ImageTooOld"
    assert "disabling" in observe_log(old).excerpt
    lost = "[2026-11-29 15:49:10,553] LMCache WARNING: Rejecting STORE for unregistered GPU instance ID 7 (a.py:1:b)"
    assert observe_log(lost).code == "RegistrationLost"
    for log in LOGS.glob("healthy-*.log"):
        assert observe_log(log.read_text()) is None
