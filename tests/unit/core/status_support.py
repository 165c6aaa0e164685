"""Resources as the API serves them, observed and judged by the operator's own functions."""

import datetime as dt
import json

from qwen_cached_serve.api.v1alpha1.status import Status
from qwen_cached_serve.core.observed import observe
from qwen_cached_serve.core.plan import plan_resource
from qwen_cached_serve.core.revision import RevisionState
from qwen_cached_serve.core.status import judge
from qwen_cached_serve.core.view import Subject
from qwen_cached_serve.inpod.facts import Gpu, ProbeReport, Versions
from qwen_cached_serve.inpod.flags import cache_server_argv, engine_argv
from qwen_cached_serve.inpod.identity import with_identity
from qwen_cached_serve.inpod.message import argv_hash, termination_message

NOON = dt.datetime(2026, 11, 29, 12, 0, 0, tzinfo=dt.UTC)
HASH = "6c4f8d"


def message(resolved, n=784, gpu="NVIDIA H100 80GB HBM3", **changes):
    fields = {
        "block_size": n,
        "kernel_block_size": n,
        "attention_backends": ("FLASH_ATTN",),
        "method": "Construct",
        "versions": Versions("0.32.0", "0.5.6"),
        "max_model_len": 262144,
        "model_revision": "4f2a9c1",
        "gpus": (Gpu(gpu, "GPU-1", "9.0", "580.1", 80 << 30),),
    } | changes
    report = ProbeReport(**fields)
    if resolved.cached:
        commit = f"commit {report.model_revision}"
        report = with_identity(resolved.settings, report, {}, commit, {"vllm": "b" * 16})
    digest = argv_hash(engine_argv(resolved.settings, report), cache_server_argv(resolved.settings, report))
    return termination_message(report, digest)


def deployment(wanted=1, updated=1, available=1, replicas=None, generation=1, observed=1, conditions=()):
    replicas = wanted if replicas is None else replicas
    return {
        "metadata": {
            "name": "q36",
            "generation": generation,
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "spec": {"replicas": wanted},
        "status": {
            "observedGeneration": observed,
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": available,
            "availableReplicas": available,
            "conditions": list(conditions),
        },
    }


def replica_set(conditions=()):
    return {
        "metadata": {
            "name": f"q36-{HASH}",
            "annotations": {"deployment.kubernetes.io/revision": "1"},
            "labels": {"pod-template-hash": HASH},
        },
        "status": {"conditions": list(conditions)},
    }


def terminated(code=0, text="", reason=""):
    return {
        "terminated": {"exitCode": code, "message": text, "reason": reason or ("Completed" if code == 0 else "Error")}
    }


def status_of(name, state=None, *, started=False, ready=False, restarts=0, last=None):
    entry = {
        "name": name,
        "state": state or {"waiting": {"reason": "PodInitializing"}},
        "started": started,
        "ready": ready,
        "restartCount": restarts,
    }
    return entry | ({"lastState": last} if last else {})


RUNNING = {"running": {"startedAt": "2026-11-29T11:58:00Z"}}


def make_pod(
    name="q36-6c4f8d-abcde",
    *,
    probe=None,
    server=None,
    engine=None,
    ready=False,
    node="g1",
    template=HASH,
    deleting=False,
    conditions=(),
    phase="Pending",
):
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"pod-template-hash": template}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-29T11:59:00Z"
    return {
        "metadata": metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}, *conditions],
            "initContainerStatuses": [probe or status_of("probe"), server or status_of("cache-server")],
            "containerStatuses": [engine or status_of("engine")],
        },
    }


def serving_pod(resolved, name="q36-6c4f8d-abcde", **changes):
    parts = {
        "probe": status_of("probe", terminated(text=message(resolved)), ready=True),
        "server": status_of("cache-server", RUNNING, started=True, ready=True),
        "engine": status_of("engine", RUNNING, started=True, ready=True),
        "ready": True,
        "phase": "Running",
    } | changes
    return make_pod(name, **parts)


def judged(
    resolved,
    dep=None,
    pods=(),
    sets=None,
    previous=None,
    now=NOON,
    problems=(),
    generation=1,
    revision="q36-1",
    **subject,
):
    if isinstance(revision, str):
        revision = RevisionState(updated=revision)
    made = Subject(
        revision=None if problems else revision,
        generation=generation,
        resolved=None if problems else resolved,
        plan=None if problems else plan_resource(resolved),
        problems=problems,
        previous=previous or {},
        **subject,
    )
    result = judge(made, observe(dep, [replica_set()] if sets is None else sets, pods), now)
    # Whatever is judged has to fit the CustomResourceDefinition's status.
    Status.model_validate_json(json.dumps(result.status))
    assert set(result.status) <= {field.alias or name for name, field in Status.model_fields.items()}
    return result


def condition(result, kind):
    return next(entry for entry in result.status["conditions"] if entry["type"] == kind)


def short(result, kind):
    entry = condition(result, kind)
    return entry["status"], entry["reason"]
