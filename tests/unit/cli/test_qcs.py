"""`qcs` as it is called: arguments in, text and exit status out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from qwen_cached_serve.cli import main as cli
from qwen_cached_serve.cli import statuses
from qwen_cached_serve.render.yaml_text import load_all

ENVIRON = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
CONFIGS = Path(__file__).parents[1] / "core" / "fixtures" / "model-configs"
GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def file(tmp_path):
    def write(*documents, name="resource.yaml"):
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all(documents))
        return path

    return write


def resource(spec=None, name="q36", **top):
    base = {"model": {"name": "Qwen/Qwen3.6-27B"}, "cache": {"l1": {"size": "100Gi"}}}
    return {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": {"name": name},
        "spec": base | (spec or {}),
    } | top


@pytest.mark.parametrize(
    ("arguments", "n", "chunk", "tokens"),
    [
        (["--model", "Qwen/Qwen3.6-27B", "--gpu", "H100"], 784, 784, 1567),
        (["--model", "Qwen/Qwen3.5-0.8B"], 544, 544, 1087),
        (["--model", "Qwen/Qwen3.6-27B", "--gpu", "H100", "--vllm", "0.33.0"], 832, 832, 1663),
        (
            ["--model", "Qwen/Qwen3.6-27B", "--gpu", "B200", "--vllm", "0.33.0", "--attention-backend", "FLASH_ATTN"],
            896,
            896,
            1791,
        ),
        (["--model", "Qwen/Qwen3.6-27B", "--kv-cache-dtype", "fp8_e4m3"], 1568, 1568, 3135),
        (["--model", "Qwen/Qwen3.6-27B", "--tp", "8"], 400, 400, 799),
        (["--model", "Qwen/Qwen3.6-27B", "--speculative-tokens", "1"], 800, 800, 1599),
        (["--model", "Qwen/Qwen3.6-27B", "--block-size", "1024"], 1024, 1024, 2047),
        (
            [
                "--config",
                str(CONFIGS / "tiny-chain"),
                "--accelerator",
                "cpu",
                "--block-size",
                "32",
                "--ssm-dtype",
                "bfloat16",
            ],
            2144,
            2144,
            4287,
        ),
        (
            [
                "--config",
                str(CONFIGS / "tiny-chain-352" / "config.json"),
                "--accelerator",
                "cpu",
                "--block-size",
                "32",
                "--ssm-dtype",
                "bfloat16",
            ],
            352,
            352,
            703,
        ),
    ],
)
def test_plan_of_a_model(qcs, arguments, n, chunk, tokens):
    code, out, err = qcs("plan", *arguments, "-o", "json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert data["blockSize"] == n
    assert (data["chunkSize"], data["maxNumBatchedTokens"]) == (chunk, tokens)
    server = data["cacheServerArgs"]
    assert server[:2] == ["lmcache", "server"]
    assert server[server.index("--chunk-size") + 1] == str(chunk)
    engine = data["engineArgs"]
    assert engine[:2] == ["vllm", "serve"]
    assert engine[engine.index("--max-num-batched-tokens") + 1] == str(tokens)
    for flags in (data["engineFlags"], data["cacheServerFlags"]):
        assert all(flag["reason"] and flag["source"] for flag in flags)


def test_plan_as_json_has_all_the_figures(qcs):
    arguments = ["--tp", "2", "--kv-cache-dtype", "fp8", "--speculative-tokens", "1", "--gpu", "H100"]
    versions = ["--vllm", "0.32.0", "--lmcache", "0.5.6"]
    code, out, err = qcs("plan", "Qwen/Qwen3.6-27B", *arguments, *versions, "-o", "json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    figures = {"blockSize": 1584, "kernelBlockSize": 1584, "chunkSize": 1584, "maxNumBatchedTokens": 3167}
    # 48 + 16 + 1 layers, 1,024 bytes each on two ranks; 17 layers in a group of the pool
    figures |= {"bytesPerToken": 65 * 1024 * 2, "bytesPerBlock": 17 * 1584 * 1024}
    assert {name: data[name] for name in figures} == figures
    assert data["versions"] == {"vllm": "0.32.0", "lmcache": "0.5.6"}
    assert data["problem"] is None
    assert data["prediction"]["kvGroups"] == {"linear": 3, "attention": 1, "layersEach": 17}
    assert data["prediction"]["attentionBackend"] == "FLASH_ATTN"
    assert data["prediction"]["gdnPrefillBackend"] == "flashinfer"
    assert len(data["prediction"]["explanation"]) == 8
    assert any("LMCache/LMCache#4984" in warning for warning in data["warnings"])


def test_plan_takes_what_has_no_field_as_extra_arguments(qcs):
    arguments = ["Qwen/Qwen3.6-27B", "--gpu", "H100", "--vllm", "0.33.0", "--gdn-prefill-backend", "triton"]
    data = json.loads(qcs("plan", *arguments, "--mamba-cache-dtype", "float32", "-o", "json")[1])
    # The window in float32: 3 x 10,240 x 4 bytes more than the state needs otherwise.
    assert (data["blockSize"], data["prediction"]["convolutionBytes"]) == (800, 122_880)
    assert data["engineArgs"][-4:] == ["--mamba-cache-dtype", "float32", "--gdn-prefill-backend", "triton"]
    bf16 = json.loads(qcs("plan", "Qwen/Qwen3.6-27B", "--mamba-ssm-cache-dtype", "bfloat16", "-o", "json")[1])
    assert bf16["blockSize"] == 400


def test_what_a_word_of_plan_means(qcs, file, tmp_path, monkeypatch):
    path = file(resource())
    for arguments in ([path], ["-f", path], ["--file", path]):
        assert json.loads(qcs("plan", *arguments, "-o", "json")[1])["name"] == "q36"
    for arguments in (["Qwen/Qwen3.5-0.8B"], ["--model", "Qwen/Qwen3.5-0.8B"]):
        assert json.loads(qcs("plan", *arguments, "-o", "json")[1])["blockSize"] == 544
    plain = tmp_path / "resource-without-an-ending"
    plain.write_text(path.read_text())
    assert json.loads(qcs("plan", plain, "-o", "json")[1])["name"] == "q36"


def test_plan_for_people(qcs):
    code, out, _ = qcs("plan", "--model", "Qwen/Qwen3.6-27B")
    assert code == 0
    for words in (
        "784 tokens (predicted",
        "chunk size        784",
        "tokens per step   1567",
        "cache server 102Gi",
        "--chunk-size 784",
        "--max-num-batched-tokens 1567",
        "3,207,168",
        "vllm serve Qwen/Qwen3.6-27B",
    ):
        assert words in out
    assert "Hopper (compute capability 9.0) assumed" in out


def test_plan_of_a_file(qcs, file):
    path = file(
        resource(), resource({"cache": {"mode": "Disabled"}}, name="plain"), {"kind": "Secret", "apiVersion": "v1"}
    )
    code, out, _ = qcs("plan", path, "-o", "json")
    cached, plain = json.loads(out)
    assert code == 0
    assert cached["memory"]["cacheServer"]["requests"]["memory"] == "102Gi"
    assert (plain["cacheServerArgs"], plain["chunkSize"], plain["maxNumBatchedTokens"]) == (None, None, None)
    assert plain["cacheServerFlags"] == []


def test_plan_says_why_a_pod_would_refuse(qcs, file):
    spec = {"engine": {"vllm": {"maxNumBatchedTokens": {"policy": "Fixed", "value": 100}}}}
    code, out, _ = qcs("plan", file(resource(spec)))
    assert code == 1
    assert "problem           maxNumBatchedTokens.value is 100, but the unified block size N is 784" in out


def test_plan_of_an_unknown_model_is_honest(qcs, file):
    code, out, _ = qcs("plan", file(resource({"model": {"name": "acme/other"}})), "-o", "json")
    data = json.loads(out)
    assert code == 1
    assert data["blockSize"] is None
    assert "not in the catalogue" in data["problem"]


@pytest.mark.case("B14")
def test_plan_warns_of_a_block_larger_than_the_context(qcs):
    _, out, _ = qcs("plan", "--model", "Qwen/Qwen3.5-122B-A10B", "--max-model-len", "1024")
    assert "N = 2096 is larger than maxModelLen 1024: no request ever fills a block" in out
    assert "vllm#48401" in out


def test_plan_warns_of_the_alignment_trap(qcs):
    arguments = ["plan", "--model", "Qwen/Qwen3.6-27B", "--gpu", "H100", "--vllm", "0.33.0", "--block-size"]
    assert (
        "it makes N = 3136 instead of 832, so every recurrent state takes 277 % more memory"
        in qcs(*arguments, "784")[1]
    )
    assert "alignment step, not the block size" not in qcs(*arguments, "64")[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "expected a JSON object, the model's config.json"),
        ("{}", "architectures: missing"),
        ('{"architectures": ["Qwen4ExpForCausalLM"]}', "Qwen4ExpForCausalLM has another cache layout"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_config_that_cannot_be_planned_is_one_line(qcs, tmp_path, text, words):
    path = tmp_path / "config.json"
    path.write_text(text)
    for argument in (path, tmp_path):
        code, out, err = qcs("plan", "--config", argument)
        assert (code, out) == (1, "")
        assert err.startswith(f"qcs: --config {path}: ")
        assert words in err
        assert len(err.strip().splitlines()) == 1


def test_plan_warns_of_a_model_that_a_cpu_cannot_cache(qcs):
    code, out, _ = qcs("plan", "--model", "Qwen/Qwen3.5-0.8B", "--accelerator", "cpu")
    assert code == 0
    assert "padded by 20.75 %" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "give a MODEL (hub id), --config config.json or -f FILE"),
        (["plan", "--model", "acme/other"], "acme/other: not in the catalogue (Qwen/Qwen3.5-0.8B"),
        (["plan", "Qwen/Qwen3.8-Flash-Next"], "Qwen/Qwen3.8-Flash-Next: not predicted: it is a Qwen4Exp model"),
        (["plan", "Qwen/Qwen3.6-27B", "--model", "Qwen/Qwen3.5-0.8B"], "Qwen/Qwen3.6-27B: given twice; name one model"),
        (["plan", "a.yaml", "-f", "b.yaml"], "a.yaml: given twice; name one file"),
        (["plan", "Qwen/Qwen3.6-27B", "-f", "b.yaml"], "with a file (-f b.yaml), its spec names the model"),
        (["plan", str(GOLDEN / "minimal" / "in.yaml"), "--tp", "2"], "--tp: with a file, change its spec instead"),
        (["plan", "Qwen/Qwen3.6-27B", "--vllm", "nightly"], "--vllm nightly: not a release number"),
        (["plan", "Qwen/Qwen3.6-27B", "--lmcache", "0.5.x"], "--lmcache 0.5.x: not a release number"),
        (["plan", "--config", str(GOLDEN / "minimal" / "in.yaml")], "not JSON"),
        (["plan", "--model", "Qwen/Qwen3.6-27B", "--gpu", "Voodoo"], "give its compute capability instead"),
        (["plan", "--model", "Qwen/Qwen3.6-27B", "--accelerator", "tpu"], "accelerator.type"),
        (["plan", "--config", "/nowhere/config.json"], "cannot be read: No such file"),
        (["plan", "/nowhere.yaml"], "/nowhere.yaml: cannot be read: No such file or directory"),
        (["render", "/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
        (["validate", "/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
        (["status", "x", "-A"], "names are unique in one namespace only"),
    ],
)
def test_errors_are_one_line_that_helps(qcs, arguments, words):
    code, out, err = qcs(*arguments)
    assert code == 1
    assert words in err
    assert err.startswith("qcs: ")
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("option", "value"), [("--tp", 0), ("--block-size", 0), ("--speculative-tokens", -1), ("--max-model-len", 0)]
)
def test_a_number_that_cannot_be_is_refused_by_name(qcs, option, value):
    code, out, err = qcs("plan", "--model", "Qwen/Qwen3.6-27B", option, value)
    assert (code, out) == (2, "")
    assert option in err
    assert "Traceback" not in err


def test_standard_input_that_is_not_utf_8_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "qwen_cached_serve.cli.main", "validate", "-"],
        input=b"caf\xe9: 1\n",
        capture_output=True,
        env=ENVIRON,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"qcs: -: cannot be read: not UTF-8 text\n"


def test_a_file_that_is_not_yaml(qcs, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\na: 2\n")
    assert "key 'a' is there twice" in qcs("validate", path)[2]
    path.write_text("{")
    assert "not valid YAML" in qcs("plan", path)[2]
    path.write_text("kind: Deployment")
    assert "holds no QwenCachedServe" in qcs("validate", path)[2]


def test_render_is_what_the_operator_applies(qcs):
    code, out, _ = qcs("render", GOLDEN / "minimal" / "in.yaml")
    kinds = [document["kind"] for document in load_all(out)]
    assert (code, kinds) == (0, ["ConfigMap", "ServiceAccount", "Service", "Deployment"])


def test_render_of_a_file_has_no_dangling_owner(qcs, file):
    _, out, _ = qcs("render", file(resource()), "-n", "team-b", "--engine-image", "registry.example/x:1")
    for document in load_all(out):
        assert "ownerReferences" not in document["metadata"]
        assert document["metadata"]["namespace"] == "team-b"
    assert "registry.example/x:1" in out


def test_validate(qcs, file):
    good, bad = (
        file(resource(), name="good.yaml"),
        file(
            resource({"engine": {"extraArgs": ["--max_num_batched_tokens=8192"]}}),
            resource({"cache": {"l1": {"size": "-1Gi"}}}, name="other"),
            name="bad.yaml",
        ),
    )
    code, out, _ = qcs("validate", good, bad)
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == f"{good}: q36: ok"
    assert any("spec.engine.extraArgs[0]" in line and "maxNumBatchedTokens" in line for line in lines)
    assert any("spec.cache.l1.size" in line for line in lines)
    assert qcs("validate", "-q", good)[:2] == (0, "")


def test_validate_warns_on_standard_error(qcs, file):
    path = file(resource({"unsupported": {"engineArgs": ["--seed=1"]}}))
    code, out, error = qcs("validate", path)
    assert (code, out.endswith(": ok\n")) == (0, True)
    assert "warning: spec.unsupported is in use" in error
    assert qcs("validate", "-q", path) == (0, "", "")


def test_validate_knows_figures_that_the_engine_would_refuse(qcs, file):
    env = [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "0.02"}]
    code, out, _ = qcs("validate", file(resource({"engine": {"accelerator": {"type": "CPU"}, "env": env}})))
    assert code == 1
    assert "VLLM_CPU_KVCACHE_SPACE" in out
    assert "GiB" in out


def test_crds(qcs):
    code, out, _ = qcs("crds")
    (crd,) = load_all(out)
    assert (code, crd["kind"], crd["metadata"]["name"]) == (
        0,
        "CustomResourceDefinition",
        "qwencachedserves.qwencache.dev",
    )


def test_secrets_are_not_printed(qcs, file):
    path = file(resource({"unsupported": {"engineArgs": ["--api-key", "sk-very-secret"]}}))
    for output in ("json", "table"):
        _, out, _ = qcs("plan", path, "-o", output)
        assert "--api-key" in out
        assert "sk-very-secret" not in out


STATUS = {
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "Probing", "message": "The probe is finding the block size."},
        {"type": "CacheEffective", "status": "Unknown", "reason": "NotServing", "message": "No pod serves yet."},
    ],
    "availableReplicas": 0,
    "blockSize": {"predicted": 784},
    "pods": [{"name": "q36-1", "phase": "Probing", "node": "g1"}],
}


def test_status_tells_who_was_evicted_and_who_is_held_back():
    done = {"uid": "u", "pod": "q36-a", "reason": "NotRegistered", "time": "2026-11-29T12:00:00Z"}
    held = {"uid": "v", "pod": "q36-b", "reason": "CompatibilityChanged", "time": "2026-11-29T13:00:00Z"}
    manifest = resource(status={**STATUS, "evictions": [done, {**held, "heldBack": "a budget needs 2"}]})
    first, second = [line for line in statuses.detail(manifest) if line.startswith("evicted")]
    assert first.endswith("pod q36-a (NotRegistered) at 2026-11-29T12:00:00Z")
    assert second.endswith("held back: a budget needs 2")


def test_status_as_a_table():
    manifest = resource(status=STATUS)
    manifest["metadata"]["namespace"] = "llm"
    header, row = statuses.table([manifest])
    assert header.split() == ["NAMESPACE", "NAME", "READY", "REASON", "AVAILABLE", "N", "CACHE", "MODEL"]
    assert row.split() == ["llm", "q36", "False", "Probing", "0/1", "-", "NotServing", "Qwen/Qwen3.6-27B"]
    text = "\n".join(statuses.detail(manifest))
    assert "Ready=False (Probing): The probe is finding the block size." in text
    assert "pod q36-1 on g1: Probing" in text
    assert list(statuses.table([resource()]))[1].split()[:4] == ["q36", "Unknown", "NotSeenYet", "0/1"]


def test_status_without_a_cluster_is_one_line(qcs, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    code, _, err = qcs("status")
    assert code == 1
    assert err.startswith("qcs: no kubeconfig at")
    assert len(err.strip().splitlines()) == 1


def test_status_of_a_cluster_that_does_not_answer_is_one_line(qcs, tmp_path):
    path = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [cluster],
                "contexts": [context],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    code, _, err = qcs("status", "q36", "-n", "llm", "--kubeconfig", path)
    assert code == 1
    assert err.startswith("qcs: the API server says: ")
    assert len(err.strip().splitlines()) == 1


def test_the_command_line_loads_nothing_that_the_command_does_not_need():
    # Kubernetes' models alone take a second or two to load.
    program = (
        "import sys; sys.argv = ['qcs', 'plan', '--model', 'Qwen/Qwen3.6-27B']\n"
        "from qwen_cached_serve.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'kubernetes', 'jinja2', 'kopf', 'aiohttp', 'rich', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=ENVIRON)
    assert "784 tokens" in done.stdout
    assert done.stderr.strip() == "[]"


def test_a_reader_that_goes_away_is_no_error():
    program = "from qwen_cached_serve.cli.main import main; import sys; sys.argv = ['qcs', 'crds']; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRON
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
