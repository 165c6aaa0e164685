"""`qcs compat` as it is called: files in, answer and exit status out."""

import functools
import json
import os
from dataclasses import replace

import pytest
import yaml

from qwen_cached_serve.cli import compat
from qwen_cached_serve.inpod.facts import (
    CacheSettings,
    EngineSettings,
    Gpu,
    ProbeReport,
    ServeSettings,
    Versions,
    dump,
    dumps,
)
from qwen_cached_serve.inpod.identity import with_identity
from qwen_cached_serve.inpod.message import error_message, termination_message
from qwen_cached_serve.kube.port import NotFound

SETTINGS = ServeSettings("Qwen/Qwen3.6-27B", EngineSettings("GPU"), CacheSettings(enabled=True))
RESOURCE = {
    "apiVersion": "qwencache.dev/v1alpha1",
    "kind": "QwenCachedServe",
    "metadata": {"name": "q36"},
    "spec": {"model": {"name": "Qwen/Qwen3.6-27B"}, "cache": {"l1": {"size": "100Gi"}}},
}
OFF = {"mode": "Disabled"}


@pytest.fixture
def qcs(run_qcs):
    """Run `qcs compat`."""
    return functools.partial(run_qcs, "compat")


def report(n=784, settings=SETTINGS, **builds):
    made = ProbeReport(
        block_size=n,
        kernel_block_size=16,
        attention_backends=("FLASH_ATTN",),
        versions=Versions("0.32.0", "0.5.6"),
        method="Construct",
        gpus=(Gpu("NVIDIA H100", "GPU-1", "9.0", "580", 80 << 30),),
    )
    return with_identity(settings, made, {}, "commit " + "a" * 40, {"vllm": "1" * 16} | builds)


@pytest.fixture
def write(tmp_path):
    def make(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return make


def test_equal_reports(qcs, write):
    code, out, _ = qcs(write("a.json", dumps(report())), write("b.json", {"report": dump(report()), "engineArgv": []}))
    assert code == 0
    assert out.startswith("compatible: ")
    assert report().identity in out


def test_differing_reports_in_text_and_json(qcs, write):
    files = write("a.json", dumps(report())), write("b.json", dumps(report(800)))
    code, out, _ = qcs(*files)
    assert code == 1
    assert "not compatible" in out
    assert "blockSize  784  |  800" in out
    code, out, _ = qcs(*files, "-o", "json")
    answer = json.loads(out)
    assert code == 1
    assert answer["compatible"] is False
    assert {entry["component"]: (entry["first"], entry["second"]) for entry in answer["differences"]} == {
        "blockSize": ("784", "800"),
        "chunkSize": ("784", "800"),
    }
    assert answer["first"] == {"label": str(files[0]), "identity": report().identity}


def test_termination_messages(qcs, write):
    first, second = (termination_message(made, "0" * 16) for made in (report(), report(vllm="2" * 16)))
    code, out, _ = qcs(write("a.json", first), write("b.json", second))
    assert code == 1
    assert "identity" in out
    assert qcs(write("a.json", first), write("b.json", first))[0] == 0


def test_resources_leave_parts_open(qcs, write):
    file = write("r.yaml", yaml.safe_dump(RESOURCE))
    code, out, _ = qcs(file, file)
    assert code == 2
    assert "not known yet" in out
    assert "what Qwen/Qwen3.6-27B at main leads to on the hub" in out
    code, out, _ = qcs(file, file, "-o", "json")
    assert (code, json.loads(out)["compatible"]) == (2, None)


def test_resource_against_a_report(qcs, write):
    changed = RESOURCE | {"spec": RESOURCE["spec"] | {"cache": {"l1": {"size": "1Gi"}, "chunkBlocks": 2}}}
    resource, other = write("r.yaml", yaml.safe_dump(changed)), write("a.json", dumps(report()))
    code, out, _ = qcs(resource, other, "--gpu", "H100", "--vllm", "0.32.0", "--lmcache", "0.5.6", "-o", "json")
    answer = json.loads(out)
    assert code == 1
    assert {"component": "chunkSize", "first": "1568", "second": "784", "predicted": True} in answer["differences"]
    assert "release lmcache" not in {entry["component"] for entry in answer["unknown"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "neither a probe's report nor a QwenCachedServe"),
        ("- 1", "neither a probe's report nor a QwenCachedServe"),
        ("a: 1\n---\nb: 2\n", "holds 2 documents"),
        ('{"block_size": 784}', "is missing"),
        (dumps(replace(report(), identity="", identity_components={})), "names no identity"),
        (dumps(replace(report(), identity="v1-0")), "it was changed"),
        (yaml.safe_dump(RESOURCE | {"spec": {"model": {"name": "m"}, "cache": OFF}}), "its cache is off"),
        (yaml.safe_dump(RESOURCE | {"spec": {"model": {"name": "m"}}}), "cache.l1.size"),
    ],
)  # fmt: skip
def test_errors_end_with_two(qcs, write, content, words):
    code, out, error = qcs(write("a.yaml", content), write("b.json", dumps(report())))
    assert (code, out) == (2, "")
    assert words in error


def test_missing_file_and_unreadable_cluster_end_with_two(qcs, write, tmp_path):
    assert qcs(tmp_path / "gone.json", tmp_path / "gone.json")[0] == 2
    kubeconfig = tmp_path / "no-kubeconfig"
    code, _, error = qcs("pod/a", "pod/b", "--kubeconfig", kubeconfig)
    assert code == 2
    assert "no kubeconfig" in error


@pytest.fixture
def pods(monkeypatch):
    """Pods and their relays' answers, standing for a cluster."""
    known = {}

    async def read(name, namespace, origin):
        if name not in known:
            raise NotFound(f'pods "{name}" not found in {namespace}')
        return known[name]

    monkeypatch.setattr(compat, "_read_pod", read)
    return known


def pod(message=None, code=0):
    state = {"terminated": {"exitCode": code, "message": message}} if message else {"running": {}}
    return {"metadata": {"name": "p"}, "status": {"initContainerStatuses": [{"name": "probe", "state": state}]}}


def test_live_pods_by_report_and_by_message(qcs, pods):
    pods["a"] = pod(), dump(report())
    pods["b"] = pod(termination_message(report(), "0" * 16)), None
    pods["c"] = pod(termination_message(report(800), "0" * 16)), None
    assert qcs("pod/a", "pods/b", "-n", "llm")[0] == 0
    code, out, _ = qcs("pod/b", "pod/c")
    assert code == 1
    assert "blockSize" in out


def test_pods_that_cannot_be_compared(qcs, pods):
    pods["a"] = pod(), None
    pods["b"] = pod(error_message("DeviceMissing", "no GPU"), 1), None
    for name, words in (("a", "has not reported"), ("b", "DeviceMissing"), ("gone", "not found")):
        code, _, error = qcs(f"pod/{name}", f"pod/{name}")
        assert code == 2
        assert words in error


def test_values_that_may_be_secret_do_not_show(qcs, write):
    engine = EngineSettings("GPU", unsupported_args=("--secret-key", "hunter2"))
    files = write("a.json", dumps(report(settings=replace(SETTINGS, engine=engine)))), write("b.json", dumps(report()))
    code, out, _ = qcs(*files)
    assert code == 1
    assert "hunter2" not in out
    assert "engine flag --secret-key  ***  |  -" in out
    assert os.linesep in out
