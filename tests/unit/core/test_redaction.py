"""What is masked in free text before anybody sees it, and what is not."""

import pytest

from qwen_cached_serve.core.redaction import redact_text

HF = "hf_" + "a1B2c3D4e5" * 3


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"token {HF} was refused", HF),
        (f"Authorization: Bearer {HF}", HF),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
        ("GET https://me:s3cr3t@hub.example/x", "s3cr3t"),
        ("GET https://hub.example/x?X-Amz-Signature=0a1b2c3d4e5f&X=1", "0a1b2c3d4e5f"),
        ("non-default args: {'api_key': ['k-1234567890'], 'hf_token': 'abcdef'}", "abcdef"),
        ("HF_TOKEN=abcdef python3 x", "abcdef"),
        ("--api-key abcdef --port 8000", "abcdef"),
        ("--hf-token=abcdef", "abcdef"),
        ("password: hunter2", "hunter2"),
        ('{"secretAccessKey":"abcd/efgh"}', "abcd/efgh"),
        ("AWS key AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-DEF_123", "eyJzdWIiOiIxIn0"),
    ],
)
def test_what_looks_like_a_credential_is_masked(text, secret):
    assert secret not in redact_text(text)
    assert "***" in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        'secret "hf-token-of-the-team" not found',
        "couldn't find key token in Secret team-a/hf",
        "got max_num_batched_tokens=1024, block_size=2144. Set --max-num-batched-tokens to at least 2144.",
        "--long-prefill-token-threshold=512",
        '"image_token_id": 5, "bos_token": None',
        "may require authorization: server message: insufficient_scope",
        "ValueError: LMCache chunk size 256 must be a multiple of group 0 tokens_per_block 832",
        "Setting attention block size to 784 tokens to ensure that attention page size is >= mamba page size.",
        "cannot reach 'tcp://127.0.0.1:5555'",
    ],
)
def test_ordinary_words_stay(text):
    assert redact_text(text) == text


def test_a_long_word_costs_no_time():
    text = "a" * 200_000 + " " + "-" * 100_000 + " //" + "b." * 100_000
    assert redact_text(text) == text
