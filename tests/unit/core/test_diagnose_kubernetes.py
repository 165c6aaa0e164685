"""Kubernetes' own words, and how one life of a container is explained from all that there is."""

import json

import pytest

from qwen_cached_serve.core.endings import explain_end
from qwen_cached_serve.core.observed import Termination
from qwen_cached_serve.core.refusals import (
    diagnose_pod_creation,
    diagnose_pod_failure,
    diagnose_termination,
    diagnose_waiting,
)
from qwen_cached_serve.core.room import diagnose_gates, diagnose_unschedulable
from qwen_cached_serve.inpod.message import error_message

WRAPPER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
CAUSE = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614)."


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


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        (["kueue.x-k8s.io/admission"], "Kueue holds the pod back (scheduling gate kueue.x-k8s.io/admission)."),
        (
            ["kueue.x-k8s.io/topology", "kueue.x-k8s.io/admission"],
            "Kueue holds the pod back (scheduling gate kueue.x-k8s.io/admission, kueue.x-k8s.io/topology).",
        ),
        (["example.com/quota"], "A queueing system holds the pod back (scheduling gate example.com/quota)."),
        ([], "A queueing system holds the pod back."),
    ],
)
def test_a_gate_names_its_queueing_system(gates, words):
    found = diagnose_gates(gates)
    assert (found.code, found.message, found.needs_a_person) == ("SchedulingGated", words, False)


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
    assert diagnose_termination("cache-server", "OOMKilled", 137).field == "spec.cache.resources.limits.memory"
    assert diagnose_termination("engine", "OOMKilled", 137).field == "spec.engine.resources.limits.memory"
    assert diagnose_termination("engine", "Error", 1) is None


@pytest.mark.parametrize(
    ("code", "expected", "person"),
    [
        (132, "ProcessorUnsupported", True),
        (134, "Crashed", False),
        (135, "Crashed", False),
        (137, "Killed", False),
        (139, "Crashed", False),
        (143, "Killed", False),
    ],
)
def test_exit_codes(code, expected, person):
    found = diagnose_termination("engine", "Error", code, 12.0)
    assert (found.code, found.needs_a_person) == (expected, person)
    assert "12 s" in found.message or code == 132
    assert str(code) in found.message


def test_every_reason_for_a_pull_that_fails():
    for reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"):
        assert diagnose_waiting("engine", reason, "x").code == "ImagePullFailed"


@pytest.mark.parametrize(
    ("reason", "words", "code"),
    [
        ("Evicted", "The node was low on resource: memory.", "Evicted"),
        ("NodeLost", "Node n1 which was running pod q-1 is unresponsive", "NodeLost"),
        ("Terminated", "Pod was terminated in response to imminent node shutdown.", "NodeLost"),
        ("Preempting", "Preempted in order to admit critical pod", "Preempted"),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1",
            "DeviceUnavailable",
        ),
        ("OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu, requested: 1", "NodeRefused"),
        ("OutOfcpu", "Node didn't have enough resource: cpu", "NodeRefused"),
        ("NodeAffinity", "Predicate NodeAffinity failed", "NodeRefused"),
        ("SomethingNew", "words", "PodFailed"),
        ("", "", "PodFailed"),
    ],
)
def test_pods_that_will_never_run_again(reason, words, code):
    found = diagnose_pod_failure(reason, words)
    assert (found.code, found.needs_a_person) == (code, False)
    assert words.rstrip(".") in found.message


def ended(message="", code=1, reason="Error", seconds=None):
    times = {"started_at": "2026-11-29T10:00:00Z", "finished_at": "2026-11-29T10:30:05Z"} if seconds else {}
    return Termination(code, reason, message, **times)


@pytest.mark.parametrize(
    ("end", "log_tail", "code", "more"),
    [
        (ended(CAUSE), "", "MaxNumSeqsTooLarge", False),
        (ended(WRAPPER), "", "EngineStartFailed", True),
        (ended(WRAPPER), CAUSE, "MaxNumSeqsTooLarge", False),
        (ended(WRAPPER), WRAPPER, "EngineStartFailed", False),
        (ended("ZeroDivisionError: division by zero"), "", "Unknown", True),
        (ended("ZeroDivisionError: division by zero"), CAUSE, "MaxNumSeqsTooLarge", False),
        (ended(""), "", "ContainerFailed", True),
        (ended("Loading shards"), "", "ContainerFailed", True),
        (ended(CAUSE, 137, "OOMKilled"), "", "OOMKilled", False),
        (ended("", 137), "", "Killed", True),
        (ended(CAUSE, 137), "", "MaxNumSeqsTooLarge", False),
        (ended("Segmentation fault (core dumped)", 139), "", "Crashed", True),
        (ended("", 137, "ContainerStatusUnknown"), "", "NodeLost", False),
        (ended(error_message("DeviceMissing", "no GPU")), "", "DeviceMissing", False),
        (ended(error_message("FromTheFuture", "x")), "", "FromTheFuture", False),
    ],
)
def test_an_end_is_explained_by_the_best_that_is_there(end, log_tail, code, more):
    found, wants_more = explain_end("engine", end, log_tail)
    assert (found.code, wants_more) == (code, more)


def test_an_unknown_end_tells_exit_code_and_words():
    found, _ = explain_end("engine", ended("ZeroDivisionError: division by zero", 3), "")
    assert "exit code 3" in found.message
    assert "ZeroDivisionError: division by zero" in found.message
    crashed, _ = explain_end("engine", ended("RuntimeError: strange", 139), "")
    assert "RuntimeError: strange" in crashed.message


@pytest.mark.case("B33")
def test_a_start_that_was_ended_tells_how_long_it_had_taken():
    found, _ = explain_end("engine", ended("  File x\nKeyboardInterrupt: terminated", 143, seconds=True), "")
    assert (found.code, found.field) == ("KilledDuringStart", "spec.engine.startupTimeoutSeconds")
    assert "1,805 s" in found.message
    assert not found.needs_a_person


def test_a_refusal_that_passes_words_on_is_looked_into():
    words = "it refuses its arguments: lmcache server: error: unrecognized arguments: --disable-prometheus"
    found, _ = explain_end("cache-server", ended(error_message("CacheServerFailed", words)), "")
    assert (found.code, found.field) == ("UnsupportedFlag", "spec.cache.extraArgs")
    found, _ = explain_end("cache-server", ended(error_message("CacheServerFailed", "it ended 4 times")), "")
    assert found.code == "CacheServerFailed"


def test_a_refusals_own_hint_names_the_field():
    message = json.dumps({"error": {"code": "BlockSizeNotFound", "message": "none", "hint": "Use another image."}})
    found, _ = explain_end("probe", ended(message), "")
    assert (found.field, found.sentence) == ("", "none. Use another image.")
