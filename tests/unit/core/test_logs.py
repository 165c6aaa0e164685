from pathlib import Path

import pytest

from qwen_cached_serve.core.diagnose import diagnose_log
from qwen_cached_serve.inpod.engine_log import EngineLogFacts, read_engine_log

LOGS = Path(__file__).parent / "fixtures" / "engine-logs"
PADDING = (
    "(Worker pid=1) INFO 05-30 17:44:00 [interface.py:660] Padding mamba page size by 0.13% to ensure that mamba page "
    "size and attention page size are exactly equal.\n"
)
N_LINE = "Setting attention block size to {} tokens to ensure that attention page size is >= mamba page size.\n"


@pytest.mark.case("B01")
@pytest.mark.parametrize(
    ("prefix", "n"),
    [
        ("(APIServer pid=1) INFO 02-12 09:46:31 [config.py:439] ", 1072),
        ("INFO 04-25 13:28:52 [config.py:281] ", 784),
        ("(EngineCore_DP0 pid=241) INFO 05-30 17:44:00 [interface.py:649] ", 1056),
        ("(Worker_TP0 pid=166) INFO 08-19 11:02:41 [interface.py:911] ", 800),
    ],
)
@pytest.mark.parametrize("around", ["{}", "{}" + PADDING, "{0}{0}", PADDING + "{}", "{0}" + PADDING + "{0}"])
def test_n_is_read_wherever_the_line_is_printed(prefix, n, around):
    assert read_engine_log(around.format(prefix + N_LINE.format(n))).block_size == n


@pytest.mark.case("B02")
def test_n_printed_after_the_weights_were_loaded():
    facts = read_engine_log((LOGS / "healthy-with-cache.log").read_text())
    assert (facts.block_size, facts.padding_percent, facts.conflicting_block_sizes) == (2144, None, ())
    assert facts.prefix_caching_disabled is None


@pytest.mark.case("B03")
@pytest.mark.parametrize("backwards", [False, True])
def test_a_backends_own_block_is_never_n(backwards):
    prefix = "(EngineCore pid=77) INFO 09-02 08:12:03 [interface.py:"
    lines = [
        f"{prefix}635] Setting kv cache block size to 64 for FLASHMLA backend.\n",
        f"{prefix}911] {N_LINE.format(1152)}",
    ]
    facts = read_engine_log("".join(reversed(lines) if backwards else lines))
    assert (facts.block_size, facts.kernel_block_size) == (1152, 64)


@pytest.mark.case("B04")
@pytest.mark.parametrize("candidates", ["('FLASHINFER', 'TRITON_ATTN')", "['FLASHINFER', 'TRITON_ATTN']"])
def test_the_decoders_backend_is_not_the_vision_towers(candidates):
    log = (
        "(EngineCore pid=77) INFO 08-25 14:58:34 [mm_encoder_attention.py:230] Using AttentionBackendEnum."
        "FLASH_ATTN for MMEncoderAttention.\n"
        "(EngineCore pid=77) INFO 08-25 14:58:34 [qwen_gdn_linear_attn.py:150] Using Triton/FLA GDN prefill kernel "
        "(requested=auto, head_k_dim=128).\n"
        "(EngineCore pid=77) INFO 08-25 14:58:35 [cuda.py:482] Using FLASHINFER attention backend out of potential "
        f"backends: {candidates}.\n"
    )
    assert read_engine_log(log).attention_backend == "FLASHINFER"


@pytest.mark.case("B04")
def test_the_older_form_is_accepted():
    assert (
        read_engine_log("INFO [x.py:1] Using AttentionBackendEnum.FLASH_ATTN backend.\n").attention_backend
        == "FLASH_ATTN"
    )
    only_vision = "INFO [x.py:1] Using AttentionBackendEnum.FLASH_ATTN for MMEncoderAttention.\n"
    assert read_engine_log(only_vision).attention_backend is None


@pytest.mark.case("B05")
def test_no_n_line_is_unknown_and_not_a_number():
    facts = read_engine_log(PADDING.replace("0.13", "30.61"))
    assert facts.block_size is None
    assert facts.padding_percent == 30.61


@pytest.mark.case("B06")
def test_an_engine_that_turned_prefix_caching_off_is_caught():
    off = (
        "(APIServer pid=1) INFO 02-12 09:46:30 [config.py:302] Hybrid or mamba-based model detected without support "
        "for prefix caching: disabling.\n"
    )
    facts = read_engine_log(off + "(APIServer pid=1) INFO 02-12 09:46:31 [config.py:439] " + N_LINE.format(1072))
    assert facts.block_size == 1072
    assert facts.prefix_caching_disabled == off.strip()
    fallback = "... without support for prefix caching with Mamba cache 'all' mode: falling back to 'align' mode."
    assert read_engine_log(fallback).prefix_caching_disabled is None


def test_workers_that_disagree_give_no_n():
    facts = read_engine_log(N_LINE.format(784) + N_LINE.format(800))
    assert (facts.block_size, facts.conflicting_block_sizes) == (None, (784, 800))


def test_another_line_that_begins_the_same_is_not_n():
    assert read_engine_log("Setting attention block size to 784 tokens so the quantized primary KV page covers x") == (
        EngineLogFacts()
    )


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("batched-tokens-below-n", 2144),
        ("healthy-0.8b-geometry-padded", 640),
        ("healthy-batched-tokens-2n", 2144),
        ("unknown-flag", None),
    ],
)
def test_recorded_logs(name, n):
    assert read_engine_log((LOGS / f"{name}.log").read_text()).block_size == n


def test_healthy_logs_are_not_diagnosed():
    for log in LOGS.glob("healthy-*.log"):
        assert diagnose_log(log.read_text()) is None, log.name
