"""Whatever the kubelet cuts off: the answer is right or Unknown, never another class.

The kubelet keeps the last 80 lines or 2,048 bytes with FallbackToLogsOnError, so a text can begin in the middle of a
line, a word or a character.
"""

from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qwen_cached_serve.core.diagnose import diagnose_log
from qwen_cached_serve.core.loglines import CUT_BYTES

FIXTURES = Path(__file__).parent / "fixtures"
LOGS = {log.stem: log.read_bytes() for log in sorted((FIXTURES / "engine-logs").glob("*.log"))}
FAILED = {name: raw for name, raw in LOGS.items() if not name.startswith("healthy")}
ROWS = yaml.safe_load((FIXTURES / "causes.yaml").read_text())
TOO_SHORT = {"Unknown", "EngineStartFailed"}

BEFORE = """\
(APIServer pid=1) INFO 11-29 15:49:10 [api_utils.py:286] non-default args: {'model': '/model', 'hf_token': None}
(APIServer pid=1) WARNING 11-29 15:49:10 [system_utils.py:255] Errors: `OSError: [Errno 28] No space left on device`.
'[Errno -3] Temporary failure in name resolution' thrown while requesting HEAD https://hub.example/x/config.json
Retrying in 1s [Retry 1/5].
(Worker_TP0 pid=9) WARNING 11-29 15:49:11 [a.py:1] torch.OutOfMemoryError: CUDA out of memory, a smaller graph is tried
[2026-11-29 15:49:12,553] LMCache WARNING: LMCache server did not respond within 30s (a.py:1:b)
(EngineCore pid=7) INFO 11-29 15:49:13 [core.py:133] Initializing a V1 LLM engine with config: GatedRepoError
"""
AFTER = """\
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1)   File "/opt/venv/lib/python3.12/site-packages/vllm/utils.py", line 1431, in wait_for_engine_startup
(APIServer pid=1)     raise RuntimeError(
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'E': 1}
/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There are leaked objects
"""


def kubelet_tail(raw):
    """As `readLastStringFromContainerLogs` does it: 80 lines, and of them 2,048 bytes."""
    return b"".join(raw.splitlines(keepends=True)[-80:])[-2048:]


def diagnosed(raw):
    found = diagnose_log(raw.decode("utf-8", "replace"))
    return found.code if found else None


def decisive_line(raw):
    """Offset of the line that decides."""
    line = diagnose_log(raw.decode()).line
    return len("\n".join(raw.decode().split("\n")[: line - 1]).encode()) + (line > 1)


@pytest.mark.parametrize("name", FAILED)
def test_recorded_logs_cut_anywhere_before_the_decisive_line(name):
    raw = FAILED[name]
    right, decides = diagnosed(raw), decisive_line(raw)
    near = range(max(0, decides - 250), decides + 1)
    for offset in sorted({*range(0, decides, 401), *near}):
        assert diagnosed(raw[offset:]) in (right, "Unknown"), offset
    # The whole line is there: there is nothing to be unsure about.
    assert diagnosed(raw[decides:]) == right


@pytest.mark.parametrize("name", FAILED)
def test_recorded_logs_as_the_kubelet_cuts_them(name):
    raw = FAILED[name]
    assert diagnosed(kubelet_tail(raw)) in {diagnosed(raw), *TOO_SHORT}


@pytest.mark.parametrize("name", [name for name in LOGS if name.startswith("healthy")])
def test_a_healthy_log_is_healthy_wherever_it_is_cut(name):
    raw = LOGS[name]
    for offset in range(0, len(raw), 331):
        assert diagnosed(raw[offset:]) in (None, "Unknown"), offset
    assert diagnosed(raw) is None


@pytest.mark.case("B26")
@settings(max_examples=400, deadline=None)
@given(row=st.sampled_from(ROWS), cut=st.floats(0, 1), pad=st.integers(0, 40))
def test_known_causes_amid_noise_cut_anywhere(row, cut, pad):
    quiet = "(Worker_TP0 pid=9) INFO 11-29 15:49:14 [a.py:1] Loading safetensors checkpoint shards\n"
    before = (BEFORE + quiet * pad).encode()
    raw = before + row["text"].encode() + b"\n" + AFTER.encode()
    at = round(cut * len(before))
    if len(raw) - at <= CUT_BYTES and at:
        # The kubelet cuts inside a line at 2,048 bytes only; its other limit, 80 lines, cuts between lines.
        at = before.index(b"\n", at - 1) + 1
    piece = raw[at:]
    if row["code"] == "EngineStartFailed":
        # No cause is there at all. The kubelet's cut shows by the length; a shorter text is taken as it is.
        assume(len(piece) > CUT_BYTES)
        assert diagnosed(piece) in TOO_SHORT
    else:
        assert diagnosed(piece) in {row["code"], "Unknown"}


@settings(max_examples=300, deadline=None)
@given(row=st.sampled_from(ROWS), cut=st.floats(0, 1), end=st.floats(0, 1))
def test_a_text_that_is_itself_cut_never_becomes_another_class(row, cut, end):
    """Also cut off inside the decisive line, at either side: then it may be less, but nothing else."""
    raw = row["text"].encode()
    piece = raw[round(cut * len(raw) / 2) : len(raw) - round(end * len(raw) / 2)]
    less_special = {
        "ModelNotFound": {"ModelAccessDenied"},  # "401 Client Error." alone is just that
        "ModelHubUnreachable": {"ModelNotAvailableOffline"},
        "ModelNotAvailableOffline": {"ModelHubUnreachable"},
        "PrefixCachingDisabled": {"UnsupportedCacheGroups", "BadEngineArgs"},
        "DriverTooOld": {"GPUNotVisible"},
        "EngineProcessKilled": set(),
    }
    allowed = {row["code"], "Unknown", "EngineStartFailed", "BadEngineArgs", None} | less_special.get(
        row["code"], set()
    )
    assert diagnosed(piece) in allowed


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(["", "ERROR 11-29 15:49:10 [a.py:1] ", "(EngineCore pid=1) "]))
def test_no_bytes_whatever_break_it(raw, prefix):
    found = diagnose_log(prefix + raw.decode("utf-8", "replace"))
    assert found is None or found.code
