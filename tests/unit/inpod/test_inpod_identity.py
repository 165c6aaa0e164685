"""The compatibility identity: what counts, what does not, and that no secret shows in it (DESIGN D7)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen_cached_serve.inpod.device import architecture
from qwen_cached_serve.inpod.facts import (
    CacheSettings,
    EngineSettings,
    Gpu,
    ProbeReport,
    ServeSettings,
    dumps,
    load,
)
from qwen_cached_serve.inpod.identity import (
    attach,
    checkpoint_of,
    components,
    identity,
    summary,
    unknown_parts,
    with_identity,
)
from qwen_cached_serve.inpod.message import CompactReport, read, termination_message
from qwen_cached_serve.inpod.refusal import Refusal
from tests.unit.inpod.checkpoints import content, write

BUILDS = {"vllm": "a" * 16, "lmcache": "b" * 16, "torch": "c" * 16, "flashinfer": "absent"}
COMMIT = "commit " + "d" * 40
ENVIRON = {"PATH": "/usr/bin", "HOSTNAME": "q36-7c5", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def name(
    settings: ServeSettings,
    report: ProbeReport,
    environ: dict[str, str] | None = None,
    checkpoint: str = COMMIT,
    builds: dict[str, str] | None = None,
) -> str:
    return identity(components(settings, report, ENVIRON | (environ or {}), checkpoint, builds or BUILDS))


def engine(settings: ServeSettings, **changes: Any) -> ServeSettings:
    return replace(settings, engine=replace(settings.engine, **changes))


def cache(settings: ServeSettings, **changes: Any) -> ServeSettings:
    return replace(settings, cache=replace(settings.cache, **changes))


def test_every_component_of_the_design_is_there(settings: ServeSettings, report: ProbeReport) -> None:
    found = components(settings, report, ENVIRON, COMMIT, BUILDS)
    assert found == {
        "architecture": "sm_90",
        "attentionBackend": "FLASH_ATTN",
        "blockSize": "784",
        "build flashinfer": "absent",
        "build lmcache": "b" * 16,
        "build torch": "c" * 16,
        "build vllm": "a" * 16,
        "checkpoint": COMMIT,
        "chunkSize": "784",
        "convolutionStateDtype": "auto",
        "dtype": "auto",
        "gdnPrefillBackend": "auto",
        "kernelBlockSize": "784",
        "kvCacheDtype": "auto",
        "kvLayout": "auto",
        "loadFormat": "auto",
        "mambaCacheMode": "align",
        "modalities": "text",
        "objectGroups": "separate",
        "recurrentStateDtype": "float32",
        "release lmcache": "0.5.6",
        "release torch": "2.13.0",
        "release vllm": "0.32.0",
        "seed": "0",
        "speculative": "none",
        "tensorParallelSize": "1",
        "weightQuantisation": "as the checkpoint",
    }
    assert unknown_parts(found) == []


def test_the_name_is_stable(settings: ServeSettings, report: ProbeReport) -> None:
    """Entries outlive operators: another name for the same components would empty every store. Change `SCHEMA` then."""
    assert identity({"b": "2", "a": "1"}) == "v1-" + "53571828e2f3f5725eddec7fe8d6da4a2282a389"
    assert name(settings, report).startswith("v1-")
    assert len(name(settings, report)) == 43
    assert summary(replace(report, kernel_block_size=16), 1) == "FLASH_ATTN/16 N784 tp1 auto"


GPU = Gpu("NVIDIA H100 80GB HBM3", "GPU-1234", "9.0", "580.95", 80 << 30)

COUNTING: dict[str, Callable[[ServeSettings, ProbeReport], str]] = {
    "checkpoint": lambda s, r: name(s, r, checkpoint="files " + "0" * 32),
    "N": lambda s, r: name(s, replace(r, block_size=800)),
    "kernel block": lambda s, r: name(s, replace(r, kernel_block_size=16)),
    "attention backend": lambda s, r: name(s, replace(r, attention_backends=("FLASHINFER",))),
    "GDN prefill backend": lambda s, r: name(s, replace(r, gdn_prefill_backend="flashinfer")),
    "GDN prefill backend by flag": lambda s, r: name(engine(s, extra_args=("--gdn-prefill-backend", "triton")), r),
    "KV dtype": lambda s, r: name(s, replace(r, kv_cache_dtype="fp8_e4m3")),
    "recurrent dtype": lambda s, r: name(s, replace(r, mamba_ssm_cache_dtype="bfloat16")),
    "convolution dtype": lambda s, r: name(engine(s, extra_args=("--mamba-cache-dtype", "float32")), r),
    "mamba mode": lambda s, r: name(s, replace(r, mamba_cache_mode="all")),
    "chunk": lambda s, r: name(cache(s, chunk_blocks=2), r),
    "tensor parallel": lambda s, r: name(engine(s, tensor_parallel_size=2), r),
    "speculative": lambda s, r: name(engine(s, speculative_method="mtp", speculative_tokens=2), r),
    "object groups": lambda s, r: name(s, replace(r, versions=replace(r.versions, lmcache="0.5.0"))),
    "weight quantisation": lambda s, r: name(engine(s, extra_args=("-q", "fp8")), r),
    "load format": lambda s, r: name(engine(s, extra_args=("--load-format", "dummy")), r),
    "seed": lambda s, r: name(engine(s, extra_args=("--seed", "7")), r),
    "KV layout": lambda s, r: name(s, r, {"VLLM_KV_CACHE_LAYOUT": "HND"}),
    "state layout": lambda s, r: name(s, r, {"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}),
    "modalities": lambda s, r: name(engine(s, text_only=False), r),
    "unknown flag": lambda s, r: name(engine(s, extra_args=("--brand-new",)), r),
    "unsupported argument": lambda s, r: name(engine(s, unsupported_args=("--kv-cache-dtype", "fp8")), r),
    "another revision behind the probe's back": lambda s, r: name(engine(s, unsupported_args=("--revision", "x")), r),
    "cache server flag": lambda s, r: name(cache(s, extra_args=("--l1-align-bytes", "8192")), r),
    "unknown variable": lambda s, r: name(s, r, {"MY_PATCH": "1"}),
    "a share of the processors of a GPU": lambda s, r: name(s, r, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}),
    "code path": lambda s, r: name(s, r, {"PYTHONPATH": "/patches"}),
    "cache server variable": lambda s, r: name(cache(s, environment=("PYTHONHASHSEED=0",)), r),
    "vllm's build": lambda s, r: name(s, r, builds=BUILDS | {"vllm": "f" * 16}),
    "lmcache's build": lambda s, r: name(s, r, builds=BUILDS | {"lmcache": "f" * 16}),
    "torch's build": lambda s, r: name(s, r, builds=BUILDS | {"torch": "f" * 16}),
    "flashinfer's build": lambda s, r: name(s, r, builds=BUILDS | {"flashinfer": "f" * 16}),
    "GPU architecture": lambda s, r: name(s, replace(r, gpus=(replace(GPU, capability="10.0"),))),
    "CPU": lambda s, r: name(engine(s, accelerator="CPU"), r),
}

NEUTRAL: dict[str, Callable[[ServeSettings, ProbeReport], str]] = {
    "same": lambda s, r: name(s, r),
    "model's name": lambda s, r: name(replace(s, model="mirror/Qwen3.6-27B"), r),
    "served names": lambda s, r: name(replace(s, served_names=("other",)), r),
    "defaults written out": lambda s, r: name(engine(s, extra_args=("--seed=0", "--load_format", "AUTO")), r),
    "backends twice": lambda s, r: name(s, replace(r, attention_backends=("FLASH_ATTN", "FLASH_ATTN"))),
    "builder's suffix": lambda s, r: name(s, replace(r, versions=replace(r.versions, vllm="0.32.0+cu130"))),
    "driver": lambda s, r: name(s, replace(r, gpus=(replace(GPU, driver="590.1"),))),
    "H200 for H100": lambda s, r: name(s, replace(r, gpus=(replace(GPU, name="NVIDIA H200", uuid="GPU-2"),))),
    "node and timings": lambda s, r: name(s, replace(r, node="n2", timings_seconds={"import": 9.0})),
    "L1's size": lambda s, r: name(cache(s, l1_size_bytes=1 << 30, eviction_policy="ARC"), r),
    "memory": lambda s, r: name(engine(s, gpu_memory_utilization_percent=80, max_num_seqs=64, max_model_len=4096), r),
    "logging": lambda s, r: name(engine(s, extra_args=("--enable-log-requests", "--uvicorn_log_level=debug")), r),
    "tool parser": lambda s, r: name(engine(s, extra_args=("--tool-call-parser", "x")), r),
    "watermark": lambda s, r: name(cache(s, extra_args=("--eviction-ratio=0.3",)), r),
    "pod's own variables": lambda s, r: name(s, r, {"HOSTNAME": "q36-other", "QCS_NODE_NAME": "n2", "HOME": "/x"}),
    "device plugin": lambda s, r: name(s, r, {"NVIDIA_VISIBLE_DEVICES": "GPU-9"}),
    "SR-IOV": lambda s, r: name(s, r, {"PCIDEVICE_NVIDIA_COM_RDMA": "0000:3b:00.2"}),
    "HAMi": lambda s, r: name(s, r, {
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/9f3c.cache", "CUDA_DEVICE_MEMORY_LIMIT_0": "40000m",
    }),
    "shared GPU": lambda s, r: name(s, r, {"ALIYUN_COM_GPU_MEM_IDX": "3", "ALIYUN_COM_GPU_MEM_POD": "40"}),
    "devices of other makers": lambda s, r: name(s, r, {"ZE_AFFINITY_MASK": "0.1", "AMD_VISIBLE_DEVICES": "2"}),
    "MIG's control devices": lambda s, r: name(s, r, {"NVIDIA_MIG_MONITOR_DEVICES": "all"}),
    "token": lambda s, r: name(s, r, {"HF_TOKEN": "hf_rotated"}),
    "ignored variable": lambda s, r: name(s, r, {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}),
    "server's log level": lambda s, r: name(cache(s, environment=("LMCACHE_LOG_LEVEL=DEBUG",)), r),
}  # fmt: skip


@pytest.mark.parametrize("what", COUNTING)
def test_it_counts(what: str, settings: ServeSettings, report: ProbeReport) -> None:
    assert COUNTING[what](settings, report) != name(settings, report)


def test_no_two_differences_are_the_same(settings: ServeSettings, report: ProbeReport) -> None:
    found = [change(settings, report) for change in COUNTING.values()]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("what", NEUTRAL)
def test_it_does_not_count(what: str, settings: ServeSettings, report: ProbeReport) -> None:
    assert NEUTRAL[what](settings, report) == name(settings, report)


@pytest.mark.parametrize(
    ("one", "other"),
    [("fp8", "fp8_e4m3"), ("float8_e4m3fn", "fp8"), ("half", "float16"), ("bf16", "bfloat16"), ("float", "float32")],
)
def test_names_of_one_data_type(one: str, other: str, settings: ServeSettings, report: ProbeReport) -> None:
    assert name(settings, replace(report, kv_cache_dtype=one)) == name(settings, replace(report, kv_cache_dtype=other))
    first, second = (engine(settings, extra_args=("--dtype", dtype)) for dtype in (one, other))
    assert name(first, report) == name(second, report)


@pytest.mark.case("B21")
def test_b21_the_probed_backend_counts_not_the_variable(settings: ServeSettings, report: ProbeReport) -> None:
    asked = components(settings, report, {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}, COMMIT, BUILDS)
    assert asked["attentionBackend"] == "FLASH_ATTN"
    assert not [component for component in asked if "VLLM_ATTENTION_BACKEND" in component]


@pytest.mark.parametrize("field", ["kv_cache_dtype", "mamba_ssm_cache_dtype"])
def test_what_a_dry_start_did_not_hear_counts_as_asked_for(
    settings: ServeSettings, report: ProbeReport, field: str
) -> None:
    unheard = replace(report, **{field: ""})
    names = {name(engine(settings, **{field: value}), unheard) for value in (None, "fp8_e4m3", "fp8_e5m2")}
    assert len(names) == 3


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--lora-modules", ("sql={path}",)),
        ("--lora-modules", ("a={path}", "b={path}")),
        ("--other-config", ('{{"model": "{path}", "tokens": 2}}',)),
        ("--some-table", ("{path}",)),
    ],
)
def test_files_count_wherever_an_argument_names_them(
    settings: ServeSettings, report: ProbeReport, tmp_path: Path, argument: str, words: tuple[str, ...]
) -> None:
    table = tmp_path / "table.bin"
    asked = engine(settings, unsupported_args=(argument, *(word.format(path=table) for word in words)))
    seen = set()
    for content_of_it in (None, b"one", b"two"):
        if content_of_it is not None:
            table.write_bytes(content_of_it)
        seen.add(name(asked, report))
    assert len(seen) == 3


@pytest.mark.parametrize(
    "config",
    [
        '{{"tensorizer_uri": "{folder}/w/model-rank-%03d.tensors"}}',
        '{{"tensorizer_uri": "file://{folder}/w/model-rank-%03d.tensors"}}',
        '{{"tensorizer_uri": "{folder}/%s/model-rank-000.tensors"}}',
        '{{"pattern": "{folder}/w/model-rank-{{rank}}.tensors"}}',
        '{{"tensorizer_dir": "{folder}/w"}}',
    ],
)
def test_weights_count_wherever_a_loader_is_told_to_look(
    settings: ServeSettings, report: ProbeReport, tmp_path: Path, config: str
) -> None:
    asked = engine(settings, extra_args=("--model-loader-extra-config", config.format(folder=tmp_path)))
    seen = set()
    for content_of_it in (None, b"one", b"two"):
        if content_of_it is not None:
            (tmp_path / "w").mkdir(exist_ok=True)
            (tmp_path / "w/model-rank-000.tensors").write_bytes(content_of_it)
            (tmp_path / "w/model-rank-001.tensors").write_bytes(b"the same")
        seen.add(name(asked, report))
    assert len(seen) == 3


@pytest.mark.parametrize("value", ["/{id}", "/%s", "http://host/a%20b", "/nowhere/%d/x"])
def test_a_placeholder_that_leads_nowhere_adds_nothing(
    settings: ServeSettings, report: ProbeReport, value: str
) -> None:
    found = components(engine(settings, unsupported_args=("--route", value)), report, ENVIRON, COMMIT, BUILDS)
    assert found["engine flag --route"] == value


def test_a_value_that_only_looks_like_a_path_stops_nothing(settings: ServeSettings, report: ProbeReport) -> None:
    assert name(engine(settings, unsupported_args=("--some-text", "/" + "x" * 5000)), report)


def test_every_setting_either_counts_or_is_known_not_to(settings: ServeSettings) -> None:
    """A new field of the settings has to be thought about: it is neither forgotten nor counted by accident."""
    considered = {
        EngineSettings: {
            "accelerator", "tensor_parallel_size", "text_only", "extra_args", "unsupported_args", "speculative_method",
            "speculative_tokens",
            # The probe reports what became of them, or (the first two, after a dry start) they count as asked for:
            "kv_cache_dtype", "mamba_ssm_cache_dtype", "attention_backend", "block_size",
            # Neutral, as their flags are:
            "gpu_memory_utilization_percent", "tokens_per_step", "max_model_len", "max_num_seqs",
            "tuned_max_num_seqs", "shutdown_timeout_seconds",
        },
        CacheSettings: {
            "enabled", "chunk_blocks", "extra_args", "unsupported_args", "environment",
            # Neutral: where and how long entries are kept.
            "l1_size_bytes", "eviction_policy",
        },
    }  # fmt: skip
    for kind, names in considered.items():
        assert {field.name for field in fields(kind)} - {"l2"} == names, kind


def test_secrets_do_not_show_and_rotating_them_changes_nothing(settings: ServeSettings, report: ProbeReport) -> None:
    def with_secrets(word: str) -> dict[str, str]:
        asked = engine(settings, extra_args=("--some-password", word, "--endpoint", f"https://u:{word}@host/x"))
        asked = cache(asked, environment=(f"STORE_SECRET={word}",))
        environ = {"DB_PASSWORD": word, "SERVICE_DSN": "plain words", "VLLM_SERVER_DEV_MODE": "1"}
        return components(asked, report, environ, COMMIT, BUILDS)

    found = with_secrets("hunter2")
    assert "hunter2" not in json.dumps(found)
    assert identity(found) == identity(with_secrets("hunter3"))
    assert found["engine variable DB_PASSWORD"] == "***"
    # Of a variable that nobody knows enough is shown to see a difference, and no more.
    assert found["engine variable SERVICE_DSN"].startswith("sha256 ")
    assert found["engine variable VLLM_SERVER_DEV_MODE"] == "1"


@pytest.mark.parametrize(
    ("flag", "one", "other"),
    [
        ("-cc", '{"pass_config":{"rope_kvcache_fusion_max_token_num":1}}',
         '{"pass_config":{"rope_kvcache_fusion_max_token_num":4096}}'),
        ("--hf-overrides", '{"text_config":{"token_mixer":"a"}}', '{"text_config":{"token_mixer":"b"}}'),
        ("--hf-overrides", '{"eos_token":1}', '{"eos_token":2}'),
        ("--hf-overrides", '{"token_rates":[1,2]}', '{"token_rates":[2,1]}'),
        ("--additional-config", '{"quant_per_token":true}', '{"quant_per_token":false}'),
        ("--brand-new-token-budget", "1", "2"),
        ("--brand-new-token-tree", "true", "false"),
        ("--token-mixer", "a", "b"),
    ],
)  # fmt: skip
def test_the_word_token_hides_no_difference(
    settings: ServeSettings, report: ProbeReport, flag: str, one: str, other: str
) -> None:
    """Two engines that compute differently shared a store, since a figure was masked as if it were a secret."""
    assert name(engine(settings, extra_args=(flag, one)), report) != name(
        engine(settings, extra_args=(flag, other)), report
    )


@pytest.mark.parametrize("variable", ["VLLM_MOE_TOKEN_MODE", "MY_TOKEN_MIXER"])
def test_nor_does_it_in_a_variable(settings: ServeSettings, report: ProbeReport, variable: str) -> None:
    assert name(settings, report, {variable: "a"}) != name(settings, report, {variable: "b"})


def test_names_that_former_releases_gave_stay(settings: ServeSettings, report: ProbeReport) -> None:
    """Of everything that was told apart before: pods that run must keep their store over an upgrade."""
    asked = engine(settings, extra_args=(
        "--hf-overrides", '{"b":1,"a":[2,{"image_token_id":5}]}', "--some-password", "x", "-cc", '{"level":3}',
        "--other", '{"token":"hf_x","url":"redis://u:p@h"}', "--spec-model", "/nowhere/draft", "--new-threshold=1.5",
    ))  # fmt: skip
    environ = {"MY_TOKEN": "hf_x", "DB_PASSWORD": "x", "VLLM_SERVER_DEV_MODE": "1", "SERVICE": "s", "PYTHONPATH": "/p"}
    assert name(asked, report, environ) == "v1-" + "6ef60852d945245eb407ff0df1715d60c7f9f3e2"


def test_fields_of_the_pod_count_by_name_only(settings: ServeSettings, report: ProbeReport) -> None:
    own = replace(settings, pod_variables=("MY_ADDRESS",))
    assert name(own, report, {"MY_ADDRESS": "10.0.0.7"}) == name(own, report, {"MY_ADDRESS": "10.0.0.8"})
    assert name(own, report, {"MY_ADDRESS": "10.0.0.7"}) != name(own, report)


def test_what_an_argument_names_counts_with_its_content(
    settings: ServeSettings, report: ProbeReport, tmp_path: Path
) -> None:
    draft = write(tmp_path / "draft")
    asked = engine(settings, unsupported_args=("--spec-model", str(draft)))
    before = name(asked, report)
    assert before == name(asked, report)
    write(draft, content(1))
    assert name(asked, report) != before


def test_a_processor_is_known_by_the_instructions_that_shape_its_cache(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    cpuinfo = tmp_path / "proc/cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2 sse4_2 avx512f amx_tile\n\nprocessor : 1\nflags : fpu\n")
    assert architecture("CPU", (), tmp_path).split()[1:] == ["amx_tile", "avx2", "avx512f"]
    cpuinfo.write_text("processor : 0\nFeatures : fp asimd sve\n")
    assert architecture("CPU", (), tmp_path).split()[1:] == ["asimd", "sve"]


def test_gpus_are_known_without_nvidia_smi_too(tmp_path: Path) -> None:
    assert architecture("GPU", (), tmp_path) == "unknown"
    card = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n")
    assert architecture("GPU", (), tmp_path) == "NVIDIA H100 80GB HBM3"
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/1"
    node.mkdir(parents=True)
    (node / "properties").write_text("cpu_cores_count 0\ngfx_target_version 90402\n")
    assert architecture("GPU", (), tmp_path) == "gfx_90402"
    assert architecture("GPU", (GPU, replace(GPU, capability="8.9")), tmp_path) == "sm_89+sm_90"


def test_the_checkpoint_of_hub_and_folder(settings: ServeSettings, report: ProbeReport, tmp_path: Path) -> None:
    assert checkpoint_of(settings, report, dummy=False) == f"commit {'a' * 40}"
    local = replace(settings, model=str(write(tmp_path / "m")), revision=None)
    found = checkpoint_of(local, replace(report, model_revision=""), dummy=False)
    assert found.startswith("files ")
    for revision in ("", "None", "main"):
        with pytest.raises(Refusal) as refused:
            checkpoint_of(settings, replace(report, model_revision=revision), dummy=False)
        assert refused.value.code == "CheckpointUnreadable"


def test_attach_completes_a_report(settings: ServeSettings, report: ProbeReport, tmp_path: Path) -> None:
    """The case of facts/local-cluster.md §6: other weights at the same path, which LMCache's keys cannot tell apart."""
    folder = write(tmp_path / "m")
    local, bare = replace(settings, model=str(folder), revision=None), replace(report, model_revision="")
    first = attach(local, bare, ENVIRON)
    assert first.identity == identity(first.identity_components)
    assert first.identity_summary == "FLASH_ATTN/784 N784 tp1 auto"
    assert "identity" in first.timings_seconds
    write(folder, content(1))
    second = attach(local, bare, ENVIRON)
    differing = {key for key, value in first.identity_components.items() if second.identity_components[key] != value}
    assert differing == {"checkpoint"}
    dummy = engine(local, extra_args=("--load-format", "dummy"))
    assert attach(dummy, bare, ENVIRON).identity not in (first.identity, second.identity)


def test_a_pod_without_a_cache_has_no_identity_and_reads_no_weights(
    settings: ServeSettings, report: ProbeReport
) -> None:
    off = replace(settings, model="/nowhere", cache=CacheSettings(enabled=False))
    assert attach(off, report, ENVIRON) == report


def test_the_message_carries_it(settings: ServeSettings, report: ProbeReport) -> None:
    named = with_identity(settings, report, ENVIRON, COMMIT, BUILDS)
    again = read(termination_message(named, "0" * 16))
    assert isinstance(again, CompactReport)
    assert (again.identity, again.identity_summary) == (named.identity, named.identity_summary)
    crowded = replace(
        named,
        architecture="x" * 80,
        attention_backends=tuple(f"BACKEND_{number:060}" for number in range(8)),
        gpus=tuple(replace(GPU, uuid=f"GPU-{number:060}") for number in range(16)),
    )
    again = read(termination_message(crowded, "0" * 16))
    assert isinstance(again, CompactReport)
    assert again.identity == named.identity
    assert again.gpu_uuids == ()


def test_where_the_engine_listens_does_not_count(settings: ServeSettings, report: ProbeReport) -> None:
    assert name(settings, replace(report, engine_host="::")) == name(settings, report)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5), st.randoms())
def test_the_order_of_components_never_matters(found: dict[str, str], random: Any) -> None:
    items = list(found.items())
    random.shuffle(items)
    assert identity(dict(items)) == identity(found)


def test_two_interpreters_agree(settings: ServeSettings, report: ProbeReport) -> None:
    """Hash seeds of Python must not reach it: every pod is another process."""
    program = (
        "import json, sys; from qwen_cached_serve.inpod.facts import *; from qwen_cached_serve.inpod.identity import *;"
        "d = json.load(sys.stdin); print(identity(components(load(ServeSettings, d[0]), load(ProbeReport, d[1]), d[2],"
        " d[3], d[4])))"
    )
    asked = engine(settings, extra_args=("--brand-new", "1", "--seed", "3", '--hf-overrides={"b":1,"a":2}'))
    data = json.dumps([_plain(asked), _plain(report), ENVIRON | {"X": "1", "Y": "2"}, COMMIT, BUILDS])
    source = str(Path(sys.modules["qwen_cached_serve"].__path__[0]).parent)
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=data,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {name(asked, report, {"X": "1", "Y": "2"}) + "\n"}


def _plain(value: Any) -> Any:
    return json.loads(dumps(value))


def test_reports_of_older_scripts_load(report: ProbeReport) -> None:
    old = {key: value for key, value in _plain(report).items() if not key.startswith("identity")}
    assert load(ProbeReport, old) == report
