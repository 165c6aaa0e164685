from pathlib import Path

import pytest
import yaml

from qwen_cached_serve.core.diagnose import diagnose_log
from qwen_cached_serve.core.refusals import (
    diagnose_pod_creation,
    diagnose_termination,
    diagnose_unschedulable,
    diagnose_waiting,
)

LOGS = Path(__file__).parent / "fixtures" / "engine-logs"


@pytest.mark.parametrize(
    ("name", "code", "numbers"),
    [
        ("batched-tokens-below-n", "TokensPerStepBelowBlock", {"maxNumBatchedTokens": 1024, "blockSize": 2144}),
        ("batched-tokens-default-below-n", "TokensPerStepBelowBlock", {"maxNumBatchedTokens": 2048, "blockSize": 2144}),
        ("chunk-size-not-a-multiple-of-n", "ChunkSizeMismatch", {"chunkSize": 256, "blockSize": 2144}),
        ("invalid-cpu-kv-space-value", "CPUCacheSpaceInvalid", {}),
        ("mamba-cache-mode-all", "UnsupportedFlag", {}),
        ("unknown-flag", "UnsupportedFlag", {}),
    ],
)
def test_recorded_refusals(name, code, numbers):
    diagnosis = diagnose_log((LOGS / f"{name}.log").read_text())
    assert (diagnosis.code, dict(diagnosis.numbers)) == (code, numbers)


CASES = yaml.safe_load((Path(__file__).parent / "fixtures" / "causes.yaml").read_text())


@pytest.mark.parametrize(
    ("text", "code", "numbers"),
    [
        pytest.param(
            row["text"], row["code"], row["numbers"], marks=pytest.mark.case(row["case"]), id=f"{row['case']}-{i}"
        )
        for i, row in enumerate(CASES)
    ],
)
def test_causes_are_told_apart(text, code, numbers):
    diagnosis = diagnose_log(text)
    assert (diagnosis.code, dict(diagnosis.numbers)) == (code, numbers)
    assert diagnosis.hint
    assert diagnosis.excerpt in text.replace("\n", "\n")


def test_memory_is_never_blamed_for_a_size_mismatch():
    for row in CASES:
        if row["case"] == "B28":
            assert "Memory" not in diagnose_log(row["text"]).code


def test_a_text_in_a_warning_line_is_no_cause():
    line = "(APIServer pid=1) WARNING 11-29 15:11:55 [base.py:380] GatedRepoError: 401 Client Error, trying again"
    assert diagnose_log(line) is None


def test_an_unknown_text_is_not_guessed():
    assert diagnose_log("ZeroDivisionError: division by zero") is None
    assert diagnose_log("") is None


@pytest.mark.case("B49")
def test_quota_words_are_kept():
    words = 'pods "q36-6c" is forbidden: failed quota: team: must specify limits.cpu for: probe'
    diagnosis = diagnose_pod_creation(words)
    assert diagnosis.code == "QuotaExceeded"
    assert words in diagnosis.message
    exceeded = (
        'pods "q-1" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=1, used: 1, limited: 1'
    )
    assert diagnose_pod_creation(exceeded).code == "QuotaExceeded"


@pytest.mark.case("B50")
def test_pod_security_words_are_kept():
    words = (
        'pods "q36" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
        '(container "engine" must set securityContext.allowPrivilegeEscalation=false)'
    )
    diagnosis = diagnose_pod_creation(words)
    assert diagnosis.code == "PodSecurityBlocked"
    assert "allowPrivilegeEscalation != false" in diagnosis.message


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ('error looking up service account llm/qwen: serviceaccount "qwen" not found', "ServiceAccountMissing"),
        ('admission webhook "x" denied the request: no', "PodCreationRefused"),
    ],
)
def test_other_refusals_of_a_pod(words, code):
    diagnosis = diagnose_pod_creation(words)
    assert (diagnosis.code, diagnosis.needs_a_person) == (code, False)


@pytest.mark.parametrize(
    ("reason", "words", "code"),
    [
        ("CreateContainerConfigError", 'configmap "x" not found', "ConfigMapMissing"),
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root",
            "ContainerCreationFailed",
        ),
        ("RunContainerError", "no runtime for nvidia is configured", "ContainerCreationFailed"),
        ("InvalidImageName", "", "ImagePullFailed"),
    ],
)
def test_other_reasons_to_wait(reason, words, code):
    assert diagnose_waiting("engine", reason, words).code == code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ('0/1 nodes are available: persistentvolumeclaim "weights" not found.', "WaitingForVolume"),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "WaitingForNode"),
    ],
)
def test_other_reasons_for_no_node(words, code):
    assert diagnose_unschedulable(words).code == code


def test_a_kill_without_a_reason_is_told_by_its_exit_code():
    assert diagnose_termination("engine", "Error", 137).code == "Killed"
    assert diagnose_termination("engine", "Error", 143).needs_a_person is False


@pytest.mark.case("B44")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ('secret "hf" not found', 'The Secret "hf" does not exist.'),
        ("couldn't find key token in Secret team-a/hf", 'The Secret "hf" has no key "token".'),
    ],
)
def test_missing_secrets_are_told_by_the_kubelets_words(words, expected):
    diagnosis = diagnose_waiting("engine", "CreateContainerConfigError", words)
    assert (diagnosis.code, diagnosis.message, diagnosis.needs_a_person) == ("SecretMissing", expected, False)


def test_ordinary_waiting_is_no_fault():
    assert diagnose_waiting("engine", "PodInitializing", "") is None
    assert diagnose_waiting("engine", "ImagePullBackOff", 'Back-off pulling image "x"').code == "ImagePullFailed"


@pytest.mark.case("B36")
@pytest.mark.case("B42")
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "amd.com/gpu", "gpu.intel.com/i915"])
def test_any_scarce_device_is_a_wait_for_a_gpu(resource):
    words = f"0/3 nodes are available: 1 Insufficient {resource}, 2 node(s) had untolerated taint {{gpu: true}}."
    diagnosis = diagnose_unschedulable(words)
    assert diagnosis.code == "WaitingForGPU"
    assert words in diagnosis.message


@pytest.mark.case("B40")
def test_a_cache_too_big_for_every_node_is_a_wait_for_memory():
    assert diagnose_unschedulable("0/1 nodes are available: 1 Insufficient memory.").code == "WaitingForMemory"
    assert diagnose_unschedulable("0/1 nodes are available: 1 Insufficient cpu.").code == "WaitingForCPU"


@pytest.mark.case("B32")
def test_the_killed_container_names_its_own_field():
    assert "spec.cache.resources" in diagnose_termination("cache-server", "OOMKilled", 137).hint
    assert "spec.engine.resources" in diagnose_termination("engine", "OOMKilled", 137).hint
    assert diagnose_termination("engine", "Error", 1) is None
