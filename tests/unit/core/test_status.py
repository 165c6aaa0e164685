"""Statuses judged from objects as the API serves them."""

import datetime as dt
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen_cached_serve.core.conditions import TYPES
from qwen_cached_serve.core.observed import Verification, read_pod
from qwen_cached_serve.core.plan import plan_resource
from qwen_cached_serve.core.revision import Blocked, RevisionState
from qwen_cached_serve.core.status import judge
from qwen_cached_serve.core.view import Subject
from qwen_cached_serve.inpod.facts import Versions
from qwen_cached_serve.inpod.message import error_message
from tests.unit.core.status_support import (
    HASH,
    NOON,
    RUNNING,
    condition,
    deployment,
    judged,
    make_pod,
    message,
    replica_set,
    serving_pod,
    short,
    status_of,
    terminated,
)


def test_every_condition_is_there_once_and_in_order(resolved):
    result = judged(resolved())
    assert tuple(entry["type"] for entry in result.status["conditions"]) == TYPES
    for entry in result.status["conditions"]:
        assert entry["observedGeneration"] == 1
        assert entry["message"].endswith((".", "!"))


def test_a_serving_resource(resolved):
    made = resolved()
    result = judged(made, deployment(), [serving_pod(made)])
    truths = {entry["type"]: (entry["status"], entry["reason"]) for entry in result.status["conditions"]}
    assert truths == {
        "Ready": ("True", "Serving"),
        "Reconciling": ("False", "Idle"),
        "Stalled": ("False", "NotStalled"),
        "Available": ("True", "Serving"),
        "SpecAccepted": ("True", "Accepted"),
        "Probed": ("True", "Probed"),
        "BlockSizeVerified": ("True", "GatePassed"),
        "CacheEffective": ("True", "Effective"),
        "CacheCompatible": ("True", "Identical"),
        "CapacityAvailable": ("True", "Placed"),
        "RevisionCurrent": ("True", "Current"),
        "Validated": ("True", "AdvisedPair"),
    }
    status = result.status
    assert status["blockSize"] == {"predicted": 784, "probed": 784, "verified": 784}
    assert (status["plan"]["chunkSize"], status["plan"]["maxNumBatchedTokens"]) == (784, 1567)
    assert "--max-num-batched-tokens" in status["plan"]["engineArgs"]
    assert "--chunk-size" in status["plan"]["cacheServerArgs"]
    assert status["resolved"] == {
        "image": "vllm/vllm-openai:v0.32.0",
        "tensorParallelSize": 1,
        "cacheMemory": "42Gi",
        "vllm": "0.32.0",
        "lmcache": "0.5.6",
        "modelRevision": "4f2a9c1",
    }
    assert status["url"] == "http://q36.team-a.svc/v1"
    assert status["revision"] == {"updated": "q36-1", "current": "q36-1", "identity": status["pods"][0]["identity"]}
    assert status["selector"].startswith("app.kubernetes.io/component=serving")
    (pod,) = status["pods"]
    assert (pod["phase"], pod["blockSize"], pod["node"], pod["gpu"]) == ("Serving", 784, "g1", "NVIDIA H100 80GB HBM3")
    (identity,) = status["identities"]
    assert (identity["summary"], identity["pods"]) == ("FLASH_ATTN/784 N784 tp1 auto", 1)
    assert [event.reason for event in result.events] == ["Probed", "RollCompleted"]


def test_an_unchanged_world_gives_an_unchanged_status_and_no_events(resolved):
    made = resolved()
    first = judged(made, deployment(), [serving_pod(made)])
    again = judged(made, deployment(), [serving_pod(made)], previous=first.status, now=NOON + dt.timedelta(hours=3))
    assert again.status == first.status
    assert again.events == ()


def test_transition_times_move_with_the_status_only(resolved):
    made = resolved()
    starting = make_pod(probe=status_of("probe", RUNNING))
    first = judged(made, deployment(available=0), [starting])
    later = NOON + dt.timedelta(minutes=5)
    waiting = make_pod(
        node="",
        conditions=[
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            }
        ],
    )
    still = judged(made, deployment(available=0), [waiting], previous=first.status, now=later)
    assert condition(still, "Ready")["reason"] != condition(first, "Ready")["reason"]
    assert condition(still, "Ready")["lastTransitionTime"] == "2026-11-29T12:00:00Z"
    done = judged(made, deployment(), [serving_pod(made)], previous=still.status, now=later)
    assert condition(done, "Ready")["lastTransitionTime"] == "2026-11-29T12:05:00Z"


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"node": ""}, "WaitingForNode"),
        ({}, "Preparing"),
        ({"probe": status_of("probe", RUNNING)}, "Probing"),
        ({"probe": status_of("probe", terminated())}, "CacheServerStarting"),
        (
            {
                "probe": status_of("probe", terminated()),
                "server": status_of("cache-server", RUNNING, started=True),
                "engine": status_of("engine", RUNNING),
            },
            "Starting",
        ),
        (
            # Its former life ended in an orderly way: nothing has failed.
            {
                "probe": status_of("probe", terminated()),
                "server": status_of("cache-server", RUNNING, started=True),
                "engine": status_of("engine", RUNNING, restarts=1, last=terminated()),
            },
            "Starting",
        ),
        (
            {
                "probe": status_of("probe", terminated()),
                "server": status_of("cache-server", RUNNING, started=True),
                "engine": status_of("engine", RUNNING, started=True),
            },
            "NotReady",
        ),
    ],
)
def test_a_start_is_told_step_by_step(resolved, pod, reason):
    result = judged(resolved(), deployment(available=0), [make_pod(**pod)])
    assert short(result, "Ready") == ("False", reason)
    assert short(result, "Reconciling") == ("True", reason)
    assert short(result, "Stalled") == ("False", "NotStalled")
    assert short(result, "Available") == ("False", reason)


def test_a_pod_that_stopped_answering_is_what_is_told_of_several(resolved):
    made = resolved()
    silent = serving_pod(made, "q36-6c4f8d-silent", ready=False)
    result = judged(made, deployment(wanted=2, updated=2, available=1), [serving_pod(made), silent])
    assert short(result, "Ready") == ("False", "NotReady")
    assert short(result, "Reconciling") == ("True", "NotReady")
    assert short(result, "Available") == ("True", "Serving")


def test_a_pod_that_answers_is_not_yet_a_finished_roll(resolved):
    made = resolved()
    settling = judged(made, deployment(available=0), [serving_pod(made)])
    assert short(settling, "Ready") == ("False", "Settling")
    assert short(settling, "Available") == ("False", "Settling")
    assert settling.status["revision"] == {"updated": "q36-1"}
    shrinking = judged(made, deployment(), [serving_pod(made), serving_pod(made, "q36-b", deleting=True)])
    assert short(shrinking, "Ready") == ("False", "Terminating")
    assert short(shrinking, "Available") == ("True", "Serving")


def test_an_evicted_pod_is_history(resolved):
    made = resolved()
    evicted = make_pod("q36-gone", phase="Failed")
    evicted["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}
    result = judged(made, deployment(), [serving_pod(made), evicted])
    assert short(result, "Ready") == ("True", "Serving")
    assert short(result, "BlockSizeVerified") == ("True", "GatePassed")
    gone = next(pod for pod in result.status["pods"] if pod["name"] == "q36-gone")
    assert gone["phase"] == "Ended"
    assert "low on resource" in gone["reason"]


@pytest.mark.case("B02")
def test_a_long_probe_is_no_failure_and_its_status_does_not_change_with_time(resolved):
    made = resolved()
    probing = make_pod(probe=status_of("probe", RUNNING))
    first = judged(made, deployment(available=0), [probing])
    later = judged(made, deployment(available=0), [probing], previous=first.status, now=NOON + dt.timedelta(minutes=14))
    assert later.status == first.status
    assert short(later, "Probed") == ("Unknown", "Probing")


@pytest.mark.case("B05")
def test_a_probe_without_n_says_so_and_nothing_is_guessed(resolved):
    failed = make_pod(
        probe=status_of(
            "probe",
            terminated(1, error_message("BlockSizeNotFound", "vLLM did not set a block size", "Use another image.")),
        )
    )
    result = judged(resolved(), deployment(available=0), [failed])
    entry = condition(result, "Probed")
    assert (entry["status"], entry["reason"]) == ("False", "BlockSizeNotFound")
    assert entry["message"] == "vLLM did not set a block size. Use another image."
    assert "probed" not in result.status["blockSize"]
    assert short(result, "Ready") == ("False", "BlockSizeNotFound")


@pytest.mark.case("B06")
def test_an_image_that_is_too_old_needs_a_person(resolved):
    text = error_message("ImageTooOld", "vLLM 0.13 turns prefix caching off for hybrid models", "Use a newer image.")
    looping = make_pod(probe=status_of("probe", {"waiting": {"reason": "CrashLoopBackOff"}}, last=terminated(1, text)))
    result = judged(resolved(), deployment(available=0), [looping])
    assert short(result, "Probed") == ("False", "ImageTooOld")
    assert short(result, "Stalled") == ("True", "ImageTooOld")
    assert short(result, "Reconciling") == ("False", "ImageTooOld")
    assert [event.reason for event in result.events] == ["StartFailed"]


def test_what_a_refusal_of_the_probe_quotes_names_the_cause(resolved):
    text = error_message("Internal", "ModuleNotFoundError: No module named 'lmcache'", "See the log.")
    result = judged(resolved(), deployment(available=0), [make_pod(probe=status_of("probe", terminated(1, text)))])
    assert short(result, "Probed") == ("False", "ProgramMissing")


def test_an_old_refusal_does_not_hide_a_newer_end(resolved):
    refusal = error_message("DeviceMissing", "no GPU", "")
    failed = make_pod(
        probe=status_of("probe", terminated(137, reason="OOMKilled"), last=terminated(1, refusal), restarts=1)
    )
    result = judged(resolved(), deployment(available=0), [failed])
    assert short(result, "Probed") == ("False", "OOMKilled")


@pytest.mark.parametrize("code", ["DeviceMissing", "ModelNotAvailableOffline", "CheckpointMissing", "Timeout"])
def test_what_an_appearing_object_heals_is_never_stalled(resolved, code):
    failed = make_pod(probe=status_of("probe", terminated(1, error_message(code, "x", "y"))))
    result = judged(resolved(), deployment(available=0), [failed])
    assert short(result, "Probed") == ("False", code)
    assert short(result, "Stalled")[0] == "False"


@pytest.mark.case("B14")
@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1024, ("False", "BlockLargerThanContext")),
        (2096, ("False", "BlockLargerThanContext")),
        (2100, ("True", "Effective")),
    ],
)
def test_a_block_larger_than_the_context(resolved, limit, expected):
    made = resolved({"model": {"name": "Qwen/Qwen3.5-122B-A10B", "maxModelLen": limit}})
    pod = serving_pod(made, probe=status_of("probe", terminated(text=message(made, n=2096))))
    result = judged(made, deployment(), [pod])
    assert short(result, "CacheEffective") == expected
    assert short(result, "Ready") == ("True", "Serving")


SPECULATIVE = {"engine": {"vllm": {"speculative": {"method": "mtp", "tokens": 1}}}}


@pytest.mark.parametrize(
    ("limit", "expected"), [(1568, ("False", "BlockLargerThanContext")), (1569, ("True", "Effective"))]
)
def test_with_a_draft_a_prompt_needs_one_block_more(resolved, limit, expected):
    made = resolved({"model": {"name": "Qwen/Qwen3.6-27B", "maxModelLen": limit}} | SPECULATIVE)
    result = judged(made, deployment(), [serving_pod(made)])
    assert short(result, "CacheEffective") == expected
    assert "Prompts " in condition(result, "CacheEffective")["message"]
    assert " 1568 tokens" in condition(result, "CacheEffective")["message"]


def test_a_disabled_cache_is_no_fault(resolved):
    made = resolved({"cache": {"mode": "Disabled"}})
    pod = serving_pod(made)
    pod["status"]["initContainerStatuses"].pop()
    result = judged(made, deployment(), [pod])
    assert short(result, "CacheEffective") == ("False", "Disabled")
    assert short(result, "Ready") == ("True", "Serving")
    assert "cacheServerArgs" not in result.status["plan"]
    # The gate asks for the engine's health only: nothing was compared, and nothing is said to agree.
    assert short(result, "BlockSizeVerified") == ("Unknown", "CacheDisabled")
    assert "verified" not in result.status["blockSize"]


def test_an_invalid_edit_over_serving_pods(resolved):
    made = resolved()
    before = judged(made, deployment(), [serving_pod(made)])
    problem = "spec.engine.extraArgs[0]: --chunk-size is derived; remove it"
    after = judged(made, deployment(), [serving_pod(made)], previous=before.status, problems=(problem,), generation=2)
    assert short(after, "Available") == ("True", "Serving")
    assert short(after, "Ready") == ("False", "InvalidSpec")
    assert short(after, "Stalled") == ("True", "InvalidSpec")
    assert short(after, "SpecAccepted") == ("False", "Invalid")
    assert problem in condition(after, "SpecAccepted")["message"]
    assert after.status["plan"] == before.status["plan"]
    assert after.status["selector"] == before.status["selector"]
    assert after.status["observedGeneration"] == 2
    assert [event.reason for event in after.events] == ["SpecRejected"]


@pytest.mark.case("B36")
@pytest.mark.case("B42")
def test_waiting_for_a_gpu_in_the_schedulers_words(resolved):
    words = (
        "0/3 nodes are available: 1 Insufficient nvidia.com/mig-3g.40gb, 2 node(s) had untolerated taint {gpu: true}."
    )
    waiting = make_pod(
        node="", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}]
    )
    result = judged(resolved(), deployment(available=0), [waiting])
    assert short(result, "CapacityAvailable") == ("False", "WaitingForGPU")
    assert words in condition(result, "CapacityAvailable")["message"]
    assert short(result, "Stalled")[0] == "False"
    assert [event.reason for event in result.events] == ["WaitingForCapacity"]


def test_no_capacity_alarm_while_own_pods_still_hold_the_gpu(resolved):
    made = resolved()
    waiting = make_pod(
        "q36-new",
        node="",
        conditions=[
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "1 Insufficient nvidia.com/gpu.",
            }
        ],
    )
    going = serving_pod(made, "q36-old", deleting=True, template="old")
    result = judged(made, deployment(available=0), [waiting, going])
    assert short(result, "CapacityAvailable") == ("Unknown", "Terminating")
    assert result.events == ()


def unplaced(reason, message="", **pod):
    made = make_pod(
        node="", conditions=[{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]
    )
    made["spec"] |= pod.pop("spec", {})
    made["status"] |= pod
    return made


def test_a_scheduling_gate_is_no_lack_of_capacity(resolved):
    gated = unplaced("SchedulingGated", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    going = serving_pod(resolved(), "q36-old", deleting=True, template="old")
    for pods in ([gated], [gated, going]):
        result = judged(resolved(), deployment(available=0), pods)
        assert short(result, "CapacityAvailable") == ("Unknown", "SchedulingGated")
        assert "Kueue" in condition(result, "CapacityAvailable")["message"]
        assert short(result, "Ready") == ("False", "SchedulingGated")
        assert short(result, "Stalled")[0] == "False"
        assert result.events == ()


def test_a_nominated_node_is_a_scale_up_and_no_lack_of_capacity(resolved):
    pod = unplaced("Unschedulable", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", nominatedNodeName="g9")
    result = judged(resolved(), deployment(available=0), [pod])
    assert short(result, "CapacityAvailable") == ("Unknown", "ScaleUpInProgress")
    assert "g9" in condition(result, "CapacityAvailable")["message"]
    assert result.events == ()
    going = serving_pod(resolved(), "q36-old", deleting=True, template="old")
    assert short(judged(resolved(), deployment(available=0), [pod, going]), "CapacityAvailable")[1] == "Terminating"


@pytest.mark.case("B44")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ('secret "hf" not found', 'The Secret "hf" does not exist.'),
        ("couldn't find key token in Secret team-a/hf", 'The Secret "hf" has no key "token".'),
    ],
)
def test_a_missing_secret_is_named_and_no_stall(resolved, words, sentence):
    waiting = make_pod(
        probe=status_of("probe", {"waiting": {"reason": "CreateContainerConfigError", "message": words}})
    )
    result = judged(resolved(), deployment(available=0), [waiting])
    assert short(result, "Ready") == ("False", "SecretMissing")
    assert sentence in condition(result, "Ready")["message"]
    assert short(result, "Stalled")[0] == "False"


@pytest.mark.case("B49")
def test_a_refused_pod_is_told_in_the_api_servers_words(resolved):
    words = (
        'pods "q36-6c" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=1, used: 1, limited: 1'
    )
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}
    result = judged(resolved(), deployment(updated=0, available=0, replicas=0), [], sets=[replica_set([failure])])
    assert short(result, "Ready") == ("False", "QuotaExceeded")
    assert short(result, "CapacityAvailable") == ("False", "QuotaExceeded")
    assert words in condition(result, "Ready")["message"]


@pytest.mark.case("B50")
def test_pod_security_is_named(resolved):
    words = 'pods "q" is forbidden: violates PodSecurity "restricted:latest": seccompProfile (pod must not set)'
    failure = {"type": "ReplicaFailure", "status": "True", "message": words}
    result = judged(resolved(), deployment(updated=0, available=0, replicas=0, conditions=[failure]), [], sets=[])
    assert short(result, "Ready") == ("False", "PodSecurityBlocked")


@pytest.mark.case("B37")
def test_ready_is_about_the_newest_spec(resolved):
    made = resolved()
    stale = judged(made, deployment(generation=2, observed=1), [serving_pod(made)], generation=2)
    assert short(stale, "Ready") == ("False", "RollInProgress")
    assert short(stale, "Available") == ("True", "Serving")
    looping = make_pod(
        "q36-new",
        probe=status_of(
            "probe",
            {"waiting": {"reason": "CrashLoopBackOff"}},
            last=terminated(1, error_message("BadEngineArgs", "no", "z")),
        ),
    )
    old = serving_pod(made, "q36-old", template="older")
    rolling = judged(made, deployment(wanted=2, updated=1, replicas=2, available=1), [looping, old], generation=2)
    assert short(rolling, "Ready") == ("False", "BadEngineArgs")
    assert short(rolling, "Available") == ("True", "Serving")
    assert short(rolling, "RevisionCurrent") == ("False", "RollInProgress")


@pytest.mark.case("B33")
def test_a_missed_deadline_alone_is_still_loading(resolved):
    loading = make_pod(
        probe=status_of("probe", terminated()),
        server=status_of("cache-server", RUNNING, started=True),
        engine=status_of("engine", RUNNING),
    )
    missed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    result = judged(resolved(), deployment(available=0, conditions=[missed]), [loading])
    assert short(result, "Ready") == ("False", "Starting")
    assert "still loading" in condition(result, "Ready")["message"]
    assert short(result, "Stalled")[0] == "False"


@pytest.mark.case("B32")
def test_a_dead_cache_server_takes_nobody_out_of_service(resolved):
    made = resolved()
    before = judged(made, deployment(), [serving_pod(made)])
    server = status_of(
        "cache-server",
        {"waiting": {"reason": "CrashLoopBackOff"}},
        restarts=3,
        last=terminated(137, reason="OOMKilled"),
    )
    result = judged(made, deployment(), [serving_pod(made, server=server)], previous=before.status)
    assert short(result, "CacheEffective") == ("False", "OOMKilled")
    assert "spec.cache.resources.limits.memory" in condition(result, "CacheEffective")["message"]
    assert short(result, "Ready") == ("True", "Serving")
    assert [event.reason for event in result.events] == ["CacheDetached"]
    back = judged(made, deployment(), [serving_pod(made)], previous=result.status)
    assert [event.reason for event in back.events] == ["CacheAttached"]


@pytest.mark.case("B26")
def test_a_wrapper_asks_for_more_of_the_log(resolved):
    tail = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    crashed = status_of("engine", {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=2, last=terminated(1, tail))
    pod = make_pod(
        probe=status_of("probe", terminated()), server=status_of("cache-server", RUNNING, started=True), engine=crashed
    )
    made = resolved()
    result = judged(made, deployment(available=0), [pod])
    assert short(result, "Ready") == ("False", "EngineStartFailed")
    (wanted,) = result.log_requests
    assert (wanted.pod, wanted.container) == ("q36-6c4f8d-abcde", "engine")

    from qwen_cached_serve.core.observed import Observation, read_deployment

    cause = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).\n"
    known = Observation(
        read_deployment(deployment(available=0), [replica_set()]), (read_pod(pod, log_tails={"engine": cause + tail}),)
    )
    told = judge(Subject(1, made, plan_resource(made)), known, NOON)
    assert short(told, "Ready") == ("False", "MaxNumSeqsTooLarge")
    assert "614" in condition(told, "Ready")["message"]
    assert told.log_requests == ()


@pytest.mark.case("B32")
def test_the_log_of_a_dead_cache_server_is_wanted_and_is_not_taken_for_the_engines(resolved):
    made = resolved()
    server = status_of(
        "cache-server", {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3, last=terminated(1, "bye")
    )
    pod = serving_pod(made, server=server)
    result = judged(made, deployment(), [pod])
    assert [(wanted.pod, wanted.container) for wanted in result.log_requests] == [("q36-6c4f8d-abcde", "cache-server")]
    from qwen_cached_serve.core.observed import Observation, read_deployment

    tails = {"cache-server": "ValueError: unknown L2 adapter type 'redis'", "engine": "MemoryError"}
    known = Observation(read_deployment(deployment(), [replica_set()]), (read_pod(pod, log_tails=tails),))
    told = judge(Subject(1, made, plan_resource(made)), known, NOON)
    assert short(told, "CacheEffective") == ("False", "L2Misconfigured")
    assert "spec.cache.l2" in condition(told, "CacheEffective")["message"]
    assert short(told, "Available")[0] == "True"
    assert told.log_requests == ()


@pytest.mark.case("B59")
@pytest.mark.parametrize("text", ["", '{"schema":1,"blockSi', "INFO loading", '{"schema":1,"blockSize":784}{"x":1}'])
def test_a_lost_or_unreadable_report_is_a_gap_and_never_an_action(resolved, text):
    made = resolved()
    pod = serving_pod(made, probe=status_of("probe", terminated(text=text)))
    result = judged(made, deployment(), [pod])
    assert short(result, "Probed") == ("Unknown", "ReportLost")
    assert short(result, "Ready") == ("True", "Serving")
    assert "probed" not in result.status["blockSize"]


def test_a_report_is_remembered_when_its_container_is_collected(resolved):
    made = resolved()
    before = judged(made, deployment(), [serving_pod(made)])
    gone = serving_pod(made, probe=status_of("probe", terminated(text="")))
    after = judged(made, deployment(), [gone], previous=before.status)
    assert after.status["blockSize"] == before.status["blockSize"]
    assert after.status["plan"] == before.status["plan"]
    assert after.status["identities"] == before.status["identities"]
    assert after.status["resolved"] == before.status["resolved"]
    assert short(after, "Probed") == ("True", "Probed")
    assert after.events == ()


def test_a_dry_start_is_named(resolved):
    made = resolved()
    text = message(made, method="DryStart", construct_failure="AttributeError: x", kernel_block_size=0)
    result = judged(made, deployment(), [serving_pod(made, probe=status_of("probe", terminated(text=text)))])
    assert short(result, "Probed") == ("True", "Probed")
    words = condition(result, "Probed")["message"]
    assert "kernel block unknown" in words
    assert "found by starting the engine dry" in words


@pytest.mark.case("B09")
def test_pods_on_different_gpus_are_told_apart(resolved):
    made = resolved({"replicas": 2})
    one = serving_pod(made, "q36-a")
    other = serving_pod(
        made, "q36-b", node="g2", probe=status_of("probe", terminated(text=message(made, n=832, gpu="NVIDIA B200")))
    )
    result = judged(made, deployment(wanted=2, updated=2, available=2), [one, other])
    assert short(result, "Probed") == ("True", "MixedBlockSizes")
    assert "N = 784 on g1; N = 832 on g2" in condition(result, "Probed")["message"]
    assert short(result, "CacheCompatible") == ("False", "PodsDiffer")
    assert "NVIDIA B200, NVIDIA H100" in condition(result, "CacheCompatible")["message"]
    assert len(result.status["identities"]) == 2
    assert "plan" not in result.status


L2 = {"cache": {"l2": [{"name": "disk", "type": "Filesystem", "filesystem": {"claimName": "kv"}}]}}


@pytest.mark.case("B09")
def test_equal_n_on_different_gpus_is_two_identities_with_two_namespaces(resolved):
    made = resolved({"replicas": 2, **L2})
    texts = [
        message(made, n=1568, kernel_block_size=64, attention_backends=("FLASHINFER",), gpu="NVIDIA L40S"),
        message(made, n=1568, kernel_block_size=16),
    ]
    pods = [
        serving_pod(made, f"q36-{number}", node=f"g{number}", probe=status_of("probe", terminated(text=text)))
        for number, text in enumerate(texts)
    ]
    result = judged(made, deployment(wanted=2, updated=2, available=2), pods)
    assert short(result, "CacheCompatible") == ("False", "PodsDiffer")
    words = condition(result, "CacheCompatible")["message"]
    assert "They differ in attentionBackend, kernelBlockSize." in words
    assert "spec.pod.nodeSelector" in words
    shown = result.status["identities"]
    assert {entry["summary"] for entry in shown} == {"FLASHINFER/64 N1568 tp1 auto", "FLASH_ATTN/16 N1568 tp1 auto"}
    assert [entry["namespace"] for entry in shown] == [f"qcs-{entry['identity']}" for entry in shown]
    assert len({entry["identity"] for entry in shown}) == 2


@pytest.mark.case("B11")
def test_another_build_of_the_same_tag_is_another_identity(resolved):
    """All that a message names is equal, and N too: the identity alone tells."""
    made = resolved({"replicas": 2})
    other = json.loads(message(made)) | {"identity": "v1-" + "0" * 40}
    pods = [
        serving_pod(made, "q36-a"),
        serving_pod(made, "q36-b", probe=status_of("probe", terminated(text=json.dumps(other)))),
    ]
    result = judged(made, deployment(wanted=2, updated=2, available=2), pods)
    assert short(result, "CacheCompatible") == ("False", "PodsDiffer")
    assert "qcs compat pod/A pod/B" in condition(result, "CacheCompatible")["message"]


def test_pods_of_an_older_template_are_expected_to_differ(resolved):
    made = resolved()
    older = serving_pod(
        made, "q36-old", template="old", probe=status_of("probe", terminated(text=message(made, n=832)))
    )
    result = judged(made, deployment(updated=1, replicas=2), [serving_pod(made), older])
    assert short(result, "CacheCompatible") == ("True", "Identical")
    assert len(result.status["identities"]) == 2


def test_a_probe_without_an_identity_says_nothing_about_it(resolved):
    made, off = resolved(), resolved({"cache": {"mode": "Disabled"}})
    old = {key: value for key, value in json.loads(message(made)).items() if key not in ("identity", "summary")}
    pod = serving_pod(made, probe=status_of("probe", terminated(text=json.dumps(old))))
    result = judged(made, deployment(), [pod])
    assert short(result, "CacheCompatible") == ("Unknown", "IdentityNotReported")
    assert "identities" not in result.status
    plain = judged(off, deployment(), [serving_pod(off)])
    assert short(plain, "CacheCompatible") == ("Unknown", "CacheDisabled")


@pytest.mark.case("B10")
def test_the_probe_decides_and_the_formula_only_remarks(resolved):
    made = resolved()
    pod = serving_pod(made, probe=status_of("probe", terminated(text=message(made, n=832))))
    result = judged(made, deployment(), [pod])
    assert result.status["blockSize"] == {"predicted": 784, "probed": 832, "verified": 832}
    assert result.status["plan"]["maxNumBatchedTokens"] == 1663
    assert "784 was predicted" in condition(result, "Probed")["message"]


def test_n_is_shown_with_the_settings_that_it_was_probed_with(resolved):
    """During a roll the N that is shown may still be that of the former pods."""
    made = resolved()
    block = judged(made, deployment(), [serving_pod(made)], probed_with="old").status["blockSize"]
    assert (block["probed"], block["probedWith"]) == (784, "old")
    former = serving_pod(made, "q36-old-abcde", template="old")
    rolling = judged(
        made, deployment(), [former], previous={"blockSize": block}, probed_with="new", sets=[replica_set()]
    )
    assert rolling.status["blockSize"]["probedWith"] == "old"
    behind = deployment(generation=2)
    for dep, previous, known in ((behind, {"blockSize": block}, "old"), (behind, {}, None), (deployment(), {}, "new")):
        pods = [serving_pod(made)]
        shown = judged(made, dep, pods, previous=previous, probed_with="new").status["blockSize"]
        assert shown.get("probedWith") == known
    other = serving_pod(
        made, "q36-old-abcde", template="old", probe=status_of("probe", terminated(text=message(made, n=800)))
    )
    alone = judged(made, deployment(), [other], previous={"blockSize": block}, probed_with="new", sets=[replica_set()])
    assert "probedWith" not in alone.status["blockSize"]


def test_a_running_engine_with_another_n_is_reported(resolved):
    made = resolved()
    wrong = read_pod(serving_pod(made), Verification(engine_block_size=800, server_block_sizes=(784,), registered=True))
    from qwen_cached_serve.core.observed import Observation, read_deployment

    seen = Observation(read_deployment(deployment(), [replica_set()]), (wrong,))
    result = judge(Subject(1, made, plan_resource(made)), seen, NOON)
    assert short(result, "BlockSizeVerified") == ("False", "BlockSizeMismatch")
    assert "800" in condition(result, "BlockSizeVerified")["message"]
    assert "verified" not in result.status["blockSize"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"unsupported": {"engineArgs": ["--x"]}}, "UnsupportedArguments"),
        ({"model": {"modalities": "All"}}, "Modalities"),
        ({"engine": {"vllm": {"speculative": {"method": "mtp", "tokens": 1}}}}, "SpeculativeDecoding"),
    ],
)
def test_what_was_never_run_is_not_validated(resolved, spec, reason):
    made = resolved(spec)
    assert short(judged(made, deployment(), [serving_pod(made)]), "Validated") == ("False", reason)


@pytest.mark.parametrize(
    ("vllm", "lmcache", "expected"),
    [
        ("0.31.0", "0.5.6", ("True", "Reviewed")),
        ("0.34.0", "0.5.6", ("False", "KnownFault")),
        ("0.27.1", "0.5.3", ("False", "KnownFault")),
        ("0.40.0", "0.6.0", ("False", "NotReviewed")),
    ],
)
def test_versions_decide_about_validation(resolved, vllm, lmcache, expected):
    made = resolved()
    text = message(made, versions=Versions(vllm, lmcache))
    assert (
        short(
            judged(made, deployment(), [serving_pod(made, probe=status_of("probe", terminated(text=text)))]),
            "Validated",
        )
        == expected
    )


def test_stopped_is_ready_without_pods(resolved):
    made = resolved({"lifecycle": "Stopped"})
    stopping = judged(
        made, deployment(wanted=0, updated=0, available=0, replicas=0), [serving_pod(made, deleting=True)]
    )
    assert short(stopping, "Ready") == ("False", "Stopping")
    stopped = judged(made, deployment(wanted=0, updated=0, available=0), [])
    assert short(stopped, "Ready") == ("True", "Stopped")
    assert short(stopped, "Available") == ("False", "Stopped")
    assert short(stopped, "Reconciling") == ("False", "Idle")


def test_paused_says_that_nothing_is_done(resolved):
    made = resolved({"lifecycle": "Paused"})
    result = judged(made, deployment(), [serving_pod(made)])
    assert short(result, "Reconciling") == ("False", "Paused")
    assert short(result, "RevisionCurrent") == ("Unknown", "Paused")


def test_an_edit_that_waits_while_paused_is_told_and_not_shown_as_running(resolved):
    before = judged(resolved(), deployment(), [serving_pod(resolved())])
    edited = resolved({"lifecycle": "Paused", "engine": {"image": "vllm/vllm-openai:v0.33.0"}})
    result = judged(
        edited, deployment(), [serving_pod(resolved())], previous=before.status, generation=2, edit_waits=True
    )
    assert short(result, "Ready") == ("False", "Paused")
    assert "pending edit" in condition(result, "Ready")["message"]
    assert short(result, "Available") == ("True", "Serving")
    assert short(result, "Reconciling") == ("False", "Paused")
    for name in ("resolved", "plan", "url", "selector", "blockSize"):
        assert result.status[name] == before.status[name]
    again = judged(
        edited, deployment(), [serving_pod(resolved())], previous=result.status, generation=2, edit_waits=True
    )
    assert (again.status, again.events) == (result.status, ())


def test_before_anything_exists(resolved):
    result = judged(resolved())
    assert short(result, "Ready") == ("False", "Creating")
    assert result.status["blockSize"] == {"predicted": 784}
    assert result.status["availableReplicas"] == 0


@pytest.mark.case("B58")
@pytest.mark.parametrize(
    ("reason", "stalled"), [("NameTaken", "True"), ("ApplyRefused", "True"), ("ApplyForbidden", "False")]
)
def test_a_refusal_of_the_api_server_is_passed_on(resolved, reason, stalled):
    words = 'services "q36" exists and belongs to somebody else'
    result = judged(resolved(), apply_error=words, apply_reason=reason)
    assert short(result, "Ready") == ("False", reason)
    assert words in condition(result, "Ready")["message"]
    assert short(result, "Stalled")[0] == stalled


def test_a_roll_is_told_at_its_beginning_and_end(resolved):
    made = resolved()
    first = judged(made, deployment(), [serving_pod(made)])
    newer = {
        "metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}, "labels": {"pod-template-hash": "9f"}}
    }
    dep = deployment(updated=0, available=0, replicas=0, generation=2, observed=2)
    dep["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    now = RevisionState(updated="q36-2", history=("q36-1",))
    sets = [replica_set(), newer]
    rolling = judged(made, dep, [make_pod(template="9f")], sets=sets, previous=first.status, revision=now)
    assert [event.reason for event in rolling.events] == ["RollStarted"]
    assert rolling.events[0].message == "Rolling out revision q36-2 in place of q36-1."
    assert "roll" not in first.status
    assert rolling.status["roll"] == {"from": "q36-1", "to": "q36-2", "updated": 0, "total": 1, "reason": "Preparing"}
    assert rolling.status["revision"] == {"updated": "q36-2", "current": "q36-1", "history": ["q36-1"]}
    dep = deployment(generation=2, observed=2)
    dep["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    pods = [serving_pod(made, template="9f")]
    done = judged(made, dep, pods, sets=sets, previous=rolling.status, revision=now)
    assert [event.reason for event in done.events] == ["RollCompleted"]
    assert "roll" not in done.status
    identity = done.status["pods"][0]["identity"]
    assert done.status["revision"] == {
        "updated": "q36-2",
        "current": "q36-2",
        "history": ["q36-1"],
        "identity": identity,
    }


def rolling_pods(made, *, gone=False, new=None):
    """One of two pods of the former revision still serves or is gone; the other is of the new one."""
    old = serving_pod(made, "q36-old", deleting=gone)
    return [old, new or make_pod("q36-new", template="9f")]


@pytest.mark.parametrize(
    ("gone", "new", "reason"),
    [
        (False, make_pod("q36-new", template="9f", node=""), "WaitingForNode"),
        (False, unplaced("Unschedulable", "1 Insufficient nvidia.com/gpu."), "WaitingForGPU"),
        (True, unplaced("Unschedulable", "1 Insufficient nvidia.com/gpu."), "Terminating"),
        (False, unplaced("SchedulingGated"), "SchedulingGated"),
        (False, unplaced("Unschedulable", "none", nominatedNodeName="g9"), "ScaleUpInProgress"),
        (False, make_pod("q36-new", template="9f", probe=status_of("probe", RUNNING)), "Probing"),
    ],
)
def test_a_roll_says_what_it_waits_for(resolved, gone, new, reason):
    made = resolved({"replicas": 2})
    before = {"revision": {"updated": "q36-1", "current": "q36-1"}}
    newer = {
        "metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}, "labels": {"pod-template-hash": "9f"}}
    }
    dep = deployment(wanted=2, replicas=2, updated=1, available=1, generation=2, observed=2)
    dep["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    new = {**new, "metadata": {**new["metadata"], "labels": {"pod-template-hash": "9f"}}}
    now = RevisionState(updated="q36-2", history=("q36-1",))
    result = judged(
        made, dep, rolling_pods(made, gone=gone, new=new), sets=[replica_set(), newer], previous=before, revision=now
    )
    assert result.status["roll"] == {"from": "q36-1", "to": "q36-2", "updated": 1, "total": 2, "reason": reason}
    again = judged(
        made,
        dep,
        rolling_pods(made, gone=gone, new=new),
        sets=[replica_set(), newer],
        previous=result.status,
        revision=now,
    )
    assert again.status["roll"] == result.status["roll"]
    assert again.events == ()


def test_a_first_start_a_lost_pod_and_a_scale_are_no_rolls(resolved):
    made = resolved()
    assert "roll" not in judged(made, deployment(available=0), [make_pod()]).status
    first = judged(made, deployment(), [serving_pod(made)])
    lost = judged(made, deployment(available=0), [make_pod()], previous=first.status)
    assert "roll" not in lost.status
    back = judged(made, deployment(), [serving_pod(made)], previous=lost.status)
    assert [event.reason for event in back.events] == []


def test_a_second_revision_before_the_first_was_complete_is_a_roll_from_nothing(resolved):
    made = resolved()
    now = RevisionState(updated="q36-2", history=("q36-1",))
    result = judged(made, deployment(updated=0, available=0, observed=0), revision=now)
    assert result.status["roll"] == {"to": "q36-2", "updated": 0, "total": 1, "reason": "RollInProgress"}
    assert [event.message for event in result.events] == ["Rolling out revision q36-2."]


def test_an_invalid_edit_does_not_hide_the_roll_that_goes_on(resolved):
    made = resolved({"replicas": 2})
    before = {"revision": {"updated": "q36-2", "current": "q36-1"}}
    dep = deployment(wanted=2, replicas=2, updated=1, available=1)
    result = judged(made, dep, [serving_pod(made), make_pod("q36-new")], previous=before, problems=("spec.x: no",))
    assert result.status["roll"] == {"from": "q36-1", "to": "q36-2", "updated": 1, "total": 2, "reason": "Preparing"}


def test_another_revision_of_the_same_pods_is_no_roll(resolved):
    made = resolved()
    first = judged(made, deployment(), [serving_pod(made)])
    same = judged(made, deployment(), [serving_pod(made)], previous=first.status, revision="q36-2")
    assert same.events == ()
    assert same.status["revision"] == first.status["revision"] | {"updated": "q36-2", "current": "q36-2"}


def failing_roll(made, previous, name="q36-2"):
    """The first pod of a new revision fails for good while one of the former still serves."""
    marks = {"deployment.kubernetes.io/revision": "2", "qwencache.dev/revision": name}
    newer = {"metadata": {"annotations": marks, "labels": {"pod-template-hash": "9f"}}}
    dep = deployment(wanted=2, replicas=2, updated=1, available=1, generation=2, observed=2)
    dep["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    refusal = error_message("ArchitectureNotSupported", "no such model", "choose another")
    failed = make_pod(
        name="new", template="9f", probe=status_of("probe", terminated(1, refusal), restarts=3), phase="Pending"
    )
    now = RevisionState(updated=name, history=("q36-1",))
    pods = [serving_pod(made), failed]
    return judged(made, dep, pods, sets=[replica_set(), newer], previous=previous, revision=now)


@pytest.mark.case("B37")
def test_a_broken_new_revision_is_a_held_roll_and_not_a_failed_start(resolved):
    made = resolved()
    first = judged(made, deployment(wanted=2, updated=2, available=2), [serving_pod(made)])
    held = failing_roll(made, first.status)
    assert condition(held, "Stalled")["status"] == "True"
    assert condition(held, "Available")["status"] == "True"
    assert "RollHeld" in [event.reason for event in held.events]
    assert "StartFailed" not in [event.reason for event in held.events]
    assert held.status["revision"]["current"] == "q36-1"
    assert failing_roll(made, held.status).events == ()


@pytest.mark.parametrize(
    ("rollout", "updated", "expected"),
    [
        ({"onFailure": "RollBack"}, "q36-2", "q36-1"),
        ({"onFailure": "RollBack"}, "q36-1", ""),  # nothing to go back to
        ({"onFailure": "Hold"}, "q36-2", ""),
        ({}, "q36-2", ""),
    ],
)
def test_a_failed_roll_goes_back_only_where_that_is_asked_for(resolved, rollout, updated, expected):
    made = resolved({"rollout": rollout})
    first = judged(made, deployment(wanted=2, updated=2, available=2), [serving_pod(made)])
    assert first.roll_back_to == ""
    held = failing_roll(made, first.status, updated)
    assert held.roll_back_to == expected
    state = RevisionState(updated="q36-1", history=("q36-2",), held="Back at 1.")
    back = judged(
        made, deployment(wanted=2, updated=2, available=2), [serving_pod(made)], previous=held.status, revision=state
    )
    assert back.roll_back_to == ""
    assert [event.reason for event in back.events] == ["RolledBack"]


SEQUENCES = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks ({}). Please lower max_num_seqs."


def starved(made, name="q36-new", room=614, revision="q36-1", template=HASH):
    """A pod whose engine has too few state blocks, and its ReplicaSet."""
    engine = status_of(
        "engine", {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=1, last=terminated(1, SEQUENCES.format(room))
    )
    own = replica_set()
    own["metadata"]["annotations"]["qwencache.dev/revision"] = revision
    return serving_pod(made, name, engine=engine, ready=False, template=template), own


@pytest.mark.case("B23")
def test_too_few_state_blocks_are_answered_by_the_operator_and_nobody_is_called(resolved):
    made = resolved()
    pod, own = starved(made)
    result = judged(made, deployment(available=0), [pod], sets=[own])
    assert (result.adjustment.name, result.adjustment.value, result.adjustment.before) == ("maxNumSeqs", 614, 1024)
    assert short(result, "Stalled") == ("False", "NotStalled")
    assert short(result, "Ready") == ("False", "MaxNumSeqsTooLarge")
    assert "lowers maxNumSeqs to 614" in condition(result, "Ready")["message"]
    assert result.roll_back_to == ""
    # Once it is in a revision of its own, that is shown and said once.
    now = RevisionState(updated="q36-2", history=("q36-1",), tuning=(result.adjustment,))
    after = judged(made, deployment(available=0), [pod], sets=[own], previous=result.status, revision=now)
    assert after.adjustment is None  # the pod is of the former revision
    assert [(one["name"], one["value"]) for one in after.status["tuning"]] == [("maxNumSeqs", "614")]
    assert [event.reason for event in after.events if event.reason == "Tuned"] == ["Tuned"]
    again = judged(made, deployment(available=0), [pod], sets=[own], previous=after.status, revision=now)
    assert again.events == ()
    refused = judged(made, deployment(available=0), [pod], sets=[own], previous=after.status, problems=("spec.x: no",))
    assert refused.status["tuning"] == after.status["tuning"]


@pytest.mark.parametrize("seen", ["not taken up", "its ReplicaSet is not seen"])
def test_a_failure_of_the_former_revision_is_not_taken_for_the_new_ones(resolved, seen):
    made = resolved({"rollout": {"onFailure": "RollBack"}, "engine": {"autoTune": "Disabled"}})
    pod, own = starved(made)
    before = {"revision": {"updated": "q36-1", "current": "q36-0"}}
    failed = judged(made, deployment(available=0), [pod], sets=[own], previous=before)
    assert short(failed, "Stalled")[0] == "True"
    dep = deployment(available=0, updated=0, generation=2, observed=1 if seen == "not taken up" else 2)
    if seen != "not taken up":
        dep["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    now = RevisionState(updated="q36-2", history=("q36-1", "q36-0"))
    result = judged(made, dep, [pod], sets=[own], previous=failed.status, revision=now)
    assert short(result, "Stalled") == ("False", "NotStalled")
    assert (result.roll_back_to, result.adjustment) == ("", None)
    assert [event.reason for event in result.events] == ["RollStarted"]


@pytest.mark.parametrize(
    ("spec", "change", "why"),
    [
        ({"engine": {"autoTune": "Disabled"}}, {}, "spec.engine.autoTune is Disabled"),
        ({"engine": {"vllm": {"maxNumSeqs": 1024}}}, {}, "stays as it is"),
        ({"lifecycle": "Paused"}, {}, ""),
        ({}, {"revision": RevisionState(updated="q36-1", held="Held.")}, ""),
        ({}, {"revision": RevisionState(updated="q36-1", blocked=Blocked("HoldUnknown", "Gone."))}, ""),
        ({}, {"apply_error": "no"}, ""),
        ({}, {"previous": {"revision": {"updated": "q36-1", "current": "q36-1"}}}, "other pods of this revision"),
    ],
)
def test_when_the_operator_keeps_its_hands_off(resolved, spec, change, why):
    made = resolved({"replicas": 2, **spec})
    pod, own = starved(made)
    dep = deployment(wanted=2, replicas=2, updated=2, available=1)
    result = judged(made, dep, [serving_pod(made), pod], sets=[own], **change)
    assert result.adjustment is None
    shown = next(one["reason"] for one in result.status["pods"] if one["name"] == "q36-new")
    assert why in shown
    assert ("does not do it by itself" in shown) == bool(why)


def test_a_revision_that_served_is_tuned_when_nobody_is_left_to_disturb(resolved):
    made = resolved()
    pod, own = starved(made)
    before = {"revision": {"updated": "q36-1", "current": "q36-1"}}
    assert judged(made, deployment(available=0), [pod], sets=[own], previous=before).adjustment.value == 614


@pytest.mark.parametrize(
    ("state", "reason", "event"),
    [
        (RevisionState(updated="q36-1", held="Held at 1."), "RolledBack", "RolledBack"),
        (RevisionState(updated="q36-1", blocked=Blocked("NewerFormat", "Newer.")), "NewerFormat", "RollHeld"),
        (RevisionState(updated="q36-1", blocked=Blocked("HoldUnknown", "Gone.")), "HoldUnknown", "RollHeld"),
    ],
)
def test_what_keeps_the_operator_off_is_stalled_while_pods_serve(resolved, state, reason, event):
    made = resolved()
    first = judged(made, deployment(), [serving_pod(made)])
    result = judged(made, deployment(), [serving_pod(made)], previous=first.status, revision=state)
    assert short(result, "Ready") == ("False", reason)
    assert short(result, "Stalled") == ("True", reason)
    assert short(result, "Reconciling") == ("False", reason)
    assert short(result, "RevisionCurrent") == ("False", reason)
    assert short(result, "Available")[0] == "True"
    assert [one.reason for one in result.events] == [event]
    assert result.status["resolved"] == first.status["resolved"]
    again = judged(made, deployment(), [serving_pod(made)], previous=result.status, revision=state)
    assert again.events == ()
    assert again.status == result.status


@pytest.mark.case("B35")
def test_what_another_release_would_change_is_told_and_nothing_else(resolved):
    made = resolved()
    first = judged(made, deployment(), [serving_pod(made)])
    state = RevisionState(updated="q36-1", outdated="the pod's scripts (2 of 20 files)", foreign=("spec.x (mesh)",))
    result = judged(made, deployment(), [serving_pod(made)], previous=first.status, revision=state)
    assert short(result, "RevisionCurrent") == ("False", "OperatorChanged")
    assert "the pod's scripts (2 of 20 files)" in condition(result, "RevisionCurrent")["message"]
    assert "spec.x (mesh)" in condition(result, "RevisionCurrent")["message"]
    assert short(result, "Ready") == ("True", "Serving")
    assert short(result, "Stalled")[0] == "False"
    assert result.events == ()


def test_a_pod_names_the_revision_of_its_replica_set(resolved):
    made = resolved()
    named = replica_set()
    named["metadata"]["annotations"]["qwencache.dev/revision"] = "q36-1"
    assert judged(made, deployment(), [serving_pod(made)], sets=[named]).status["pods"][0]["revision"] == "q36-1"
    assert judged(made, deployment(), [serving_pod(made)]).status["pods"][0]["revision"] == HASH


def test_a_status_stays_small_with_many_pods(resolved):
    made = resolved({"replicas": 300})
    pods = [serving_pod(made, f"q36-{i}") for i in range(300)]
    result = judged(made, deployment(wanted=300, updated=300, available=300), pods)
    assert len(result.status["pods"]) == 20
    assert result.status["identities"][0]["pods"] == 300


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_plan_of_a_pod_is_shown_whatever_its_address_family(resolved, host):
    made = resolved()
    told = status_of("probe", terminated(text=message(made, engine_host=host)), ready=True)
    pod = serving_pod(made, probe=told)
    arguments = judged(made, deployment(), [pod]).status["plan"]["engineArgs"]
    assert arguments[arguments.index("--host") + 1] == host


@pytest.mark.case("B44")
def test_no_secret_reaches_the_status(resolved):
    made = resolved(
        {
            "unsupported": {
                "engineArgs": [
                    "--api-key",
                    "sk-very-secret",
                    "--hf-overrides",
                    '{"auth_token": "sk-very-secret", "x": 1}',
                ]
            }
        }
    )
    status = judged(made, deployment(), [serving_pod(made)]).status
    assert "--api-key" in status["plan"]["engineArgs"]
    assert "sk-very-secret" not in json.dumps(status)


STATES = st.sampled_from(
    [
        None,
        RUNNING,
        {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}},
        {"waiting": {"reason": "ImagePullBackOff"}},
        terminated(),
        terminated(1, "Traceback"),
        terminated(137, reason="OOMKilled"),
        terminated(1, error_message("DeviceMissing", "no GPU", "")),
        {},
    ]
)


@st.composite
def any_pod(draw, names):
    def container(name):
        last = draw(STATES)
        entry = status_of(name, draw(STATES), started=draw(st.booleans()), ready=draw(st.booleans()))
        return entry | ({"lastState": last} if last else {})

    pod = make_pod(
        f"q36-{draw(names)}",
        probe=container("probe"),
        server=container("cache-server"),
        engine=container("engine"),
        ready=draw(st.booleans()),
        node=draw(st.sampled_from(["", "g1", "g2"])),
        template=draw(st.sampled_from([HASH, "old"])),
        deleting=draw(st.booleans()),
        phase=draw(st.sampled_from(["Pending", "Running", "Failed", "Unknown"])),
    )
    if draw(st.booleans()):
        pod.pop("status")
    return pod


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_seen_is_judged_and_the_judgement_is_consistent(resolved, data):
    made = resolved({"lifecycle": data.draw(st.sampled_from(["Running", "Paused", "Stopped"]))})
    counts = st.integers(0, 3)
    dep = data.draw(
        st.none() | st.builds(deployment, counts, counts, counts, counts, st.just(2), st.sampled_from([1, 2]))
    )
    pods = data.draw(st.lists(any_pod(st.integers(0, 99)), max_size=4, unique_by=lambda pod: pod["metadata"]["name"]))
    problems = data.draw(st.sampled_from([(), ("spec.x: wrong; remove it",)]))
    result = judged(made, dep, pods, problems=problems)
    truths = {entry["type"]: entry["status"] for entry in result.status["conditions"]}
    assert (truths["Reconciling"], truths["Stalled"]) != ("True", "True")
    if truths["Ready"] == "True":
        figures = dep["status"]
        wanted = dep["spec"]["replicas"]
        assert figures["replicas"] == wanted
        assert wanted == 0 or figures["updatedReplicas"] == figures["availableReplicas"] == wanted
        assert truths["Stalled"] == truths["Reconciling"] == "False"
    again = judged(made, dep, pods, problems=problems, previous=result.status, now=NOON + dt.timedelta(days=1))
    assert again.status == result.status
    assert again.events == ()
