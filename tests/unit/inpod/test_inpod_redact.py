"""Secret values in argument vectors are masked, whatever they look like, and nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.redact import counted, digest, redact_arguments


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key", "sk-1"], ["--api-key", "***"]),
        (["--api-key", "sk-1", "sk-2", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--api_key=sk-1"], ["--api_key=***"]),
        (["--hf-token", "hf_x"], ["--hf-token", "***"]),
        (["--long-prefill-token-threshold", "512"], ["--long-prefill-token-threshold", "512"]),
        (["--max-num-batched-tokens", "1567"], ["--max-num-batched-tokens", "1567"]),
        (["--x", '{"password":"p","n":1}'], ["--x", '{"password":"***","n":1}']),
        (["--l2-adapter", '{"type":"s3","accessKey":"a"}'], ["--l2-adapter", '{"type":"s3","accessKey":"***"}']),
        (
            ["--speculative-config", '{"num_speculative_tokens":2}'],
            ["--speculative-config", '{"num_speculative_tokens":2}'],
        ),
        (["--x", "{not json"], ["--x", "{not json"]),
        (["Qwen/Qwen3.6-27B"], ["Qwen/Qwen3.6-27B"]),
        (["--api-key", "123456", "-7", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--api-key=123456"], ["--api-key=***"]),
        (["--hf-token", "-a b"], ["--hf-token", "***"]),
        (["--x", '{"url":"redis://u:hunter2@h"}'], ["--x", '{"url":"redis://***@h"}']),
        (["--x", '{"urls":["a",{"b":"s3://k:p/q@r@h/b"}]}'], ["--x", '{"urls":["a",{"b":"s3://***@h/b"}]}']),
        (["--url=http://:p@h:80/x"], ["--url=http://***@h:80/x"]),
        (["https://hf_x@h/m"], ["https://***@h/m"]),
        (["http://h:80/a", "http://h/a?b=@c"], ["http://h:80/a", "http://h/a?b=@c"]),
        (["--x", '{"password":["p"],"secret":{"a":"p"}}'], ["--x", '{"password":"***","secret":"***"}']),
        (["--x", '{"password":5,"token":1.5}'], ["--x", '{"password":"***","token":"***"}']),
        (["--x", '{"password":null,"use_token":true}'], ["--x", '{"password":null,"use_token":true}']),
        (["--x", '{"a":"{\\"password\\":\\"p\\"}"}'], ["--x", '{"a":"{\\"password\\":\\"***\\"}"}']),
        (["--x", '{"image_token_id":5,"eos_token_ids":[1,2]}'], ["--x", '{"image_token_id":5,"eos_token_ids":[1,2]}']),
        (["--x", '{"token_id":"hf_x"}'], ["--x", '{"token_id":"***"}']),
        (["--x", "{'password': 'p'}"], ["--x", "***"]),
        (['-O{"password":"p"}', "-O3", '-O{"level":3}'], ["***", "-O3", '-O{"level":3}']),
        (["--x", '{"password":"p","password":null}'], ["--x", "***"]),
        (["--x", '{"max_token_num":4096,"token_num":5}'], ["--x", '{"max_token_num":4096,"token_num":5}']),
        (["--x", '{"token_mixer":"a","token_code":7}'], ["--x", '{"token_mixer":"***","token_code":"***"}']),
        (["--token-counting=true", "--use-token", "false"], ["--token-counting=true", "--use-token", "false"]),
        (["--tokenizer", "t", "--tokenizer-mode=auto"], ["--tokenizer", "t", "--tokenizer-mode=auto"]),
        (["-uredis://u:p@h"], ["-uredis://***@h"]),
        (["--x", "[" * 20000 + '"http://u:p@h"'], ["--x", "[" * 20000 + '"http://***@h"']),
    ],
)
def test_secret_values_are_masked_and_nothing_else(arguments, shown):
    assert redact_arguments(arguments) == shown


@pytest.mark.parametrize(
    ("name", "value", "what_counts"),
    [
        # As they are: nothing in them is secret, or only the name looks like it.
        ("--hf-overrides", '{"b": 1,  "a": 2}', '{"b": 1,  "a": 2}'),
        ("-cc", '{"pass_config":{"max_token_num":4096}}', '{"pass_config":{"max_token_num":4096}}'),
        ("--long-prefill-token-threshold", "512", "512"),
        ("--enable-token-tree", "false", "false"),
        # By a digest: the word `token` alone hides no difference.
        ("-x", '{"token_mixer":"a"}', json.dumps({"token_mixer": digest("a")}, separators=(",", ":"))),
        ("-x", '{"mixer_token":7}', json.dumps({"mixer_token": digest("7")}, separators=(",", ":"))),
        (
            "-x",
            '{"token_rates":{"b":1,"a":"w"}}',
            json.dumps({"token_rates": digest('{"a":"w","b":1}')}, separators=(",", ":")),
        ),
        ("--token-mixer", "a", digest("a")),
        ("VLLM_TOKEN_MODE", "a", digest("a")),
        # By their presence.
        ("--hf-token", "123456", "***"),
        ("--token-value", "hf_x", "***"),
        ("-x", '{"token":"hf_x","hf_token":["hf_x"]}', '{"token":"***","hf_token":"***"}'),
        ("-x", '{"password":5,"api_token_num":"hf_x"}', '{"password":"***","api_token_num":"***"}'),
        ("-x", '{"url":"redis://u:p@h"}', '{"url":"redis://***@h"}'),
        ("--token-mixer", "http://u:p@h", digest("http://***@h")),
        (
            "-x",
            '{"token_rates":{"password":"p"}}',
            json.dumps({"token_rates": digest('{"password":"***"}')}, separators=(",", ":")),
        ),
    ],
)
def test_what_counts_of_a_value(name, value, what_counts):
    assert counted(name, value) == what_counts


SECRET_NAMES = st.sampled_from(
    [
        "api-key",
        "api_key",
        "apiKey",
        "hf-token",
        "password",
        "s3.secretAccessKey",
        "credentials",
        "x-authorization",
        "AWSSecretKey",
        "APIKey",
        "HFToken",
        "accesskey",
        "auth_tokens",
        "basicAuthPassword",
    ]
)
HARMLESS_NAMES = st.sampled_from(["url", "endpoint", "adapters", "port", "served-model-name"])
CANARIES = st.from_regex(r"(hunter|7)[0-9]{6}[@/]?[0-9a-z]?", fullmatch=True)
"""Recognised in whatever is shown; no other part of an argument below can hold them."""


def nested(secret):
    """JSON values with the secret somewhere below a name that says so, or in a URL."""
    as_number = [st.just(int(secret))] if secret.isdecimal() else []
    leaf = st.one_of(st.just(secret), *as_number)
    anything = st.recursive(leaf, lambda inner: st.lists(inner, min_size=1, max_size=2) | named(HARMLESS_NAMES, inner))
    place = st.one_of(
        named(SECRET_NAMES, anything),
        st.just(f"redis://u:{secret}@h:6379/0"),
        named(SECRET_NAMES, anything).map(json.dumps),
    )
    return st.recursive(place, lambda inner: st.lists(inner, min_size=1, max_size=2) | named(HARMLESS_NAMES, inner))


def named(names, values):
    return st.dictionaries(names, values, min_size=1, max_size=2)


@st.composite
def vectors(draw):
    secret = draw(CANARIES)
    value = draw(nested(secret))
    argument = value if isinstance(value, str) else json.dumps(value, indent=draw(st.sampled_from([None, 1])))
    flag, secret_flag = f"--{draw(HARMLESS_NAMES)}", f"--{draw(SECRET_NAMES)}"
    hidden = draw(
        st.sampled_from(
            [
                [flag, argument],
                [f"{flag}={argument}"],
                [argument],
                [secret_flag, secret],
                [secret_flag, "a", secret],
                [f"{secret_flag}={secret}"],
            ]
        )
    )
    return secret, ["vllm", "serve", *hidden, "--port", "8000"]


@given(vectors())
def test_no_secret_comes_through_wherever_it_stands(made):
    secret, arguments = made
    shown = redact_arguments(arguments)
    assert len(shown) == len(arguments)
    assert secret not in " ".join(shown)
    assert shown[:2] == ["vllm", "serve"]
    assert shown[-2:] == ["--port", "8000"]
    assert redact_arguments(shown) == shown


@given(vectors())
def test_no_secret_comes_through_what_counts_of_it(made):
    secret, arguments = made
    flag, _, value = arguments[2].partition("=")
    assert secret not in counted(flag, value or arguments[3])
