"""What Argo CD and kstatus (Flux, `kubectl wait`-like tools) make of every phase of a resource.

The statuses are those that the operator's own judgement writes about objects as the API serves them.
"""

import pytest

from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.core.revision import Blocked, RevisionState
from qwen_cached_serve.inpod.message import error_message
from tests.chart.gitops_support import GitopsJudge
from tests.unit.core.conftest import document
from tests.unit.core.status_support import (
    RUNNING,
    deployment,
    judged,
    make_pod,
    serving_pod,
    status_of,
    terminated,
)

UNSEEN = {"observedGeneration": -1}
"""What the definition gives a resource that no operator has looked at (tests/cluster/test_gitops.py)."""


@pytest.fixture(scope="module")
def gitops(tmp_path_factory):
    return GitopsJudge(tmp_path_factory.mktemp("gitops"))


def world(spec=None, *, dep=None, pods=(), generation=1, **judging):
    """A resource with the status that the operator writes; `pods` are those of its spec unless they are functions."""
    made = document(spec, generation=generation)
    resolved = resolve(parse(made), OperatorDefaults())
    seen = [pod(resolved) if callable(pod) else pod for pod in pods]
    return made | {"status": judged(resolved, dep, seen, generation=generation, **judging).status}


def serving(spec=None, **changes):
    return world(spec, dep=deployment(), pods=[serving_pod], **changes)


def waiting(words):
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    return world(dep=deployment(available=0), pods=[make_pod(node="", conditions=[unschedulable])])


def refused_by_the_probe():
    text = error_message("ImageTooOld", "vLLM 0.13 is too old", "Use a newer image.")
    looping = status_of("probe", {"waiting": {"reason": "CrashLoopBackOff"}}, last=terminated(1, text))
    return world(dep=deployment(available=0), pods=[make_pod(probe=looping)])


def held(state):
    return serving(previous=serving()["status"], revision=state)


def stopped():
    nothing = deployment(wanted=0, updated=0, available=0)
    return world({"lifecycle": "Stopped"}, dep=nothing)


def stopping():
    nothing = deployment(wanted=0, updated=0, available=0, replicas=0)
    return world({"lifecycle": "Stopped"}, dep=nothing, pods=[lambda resolved: serving_pod(resolved, deleting=True)])


def waiting_edit():
    edited = {"lifecycle": "Paused", "engine": {"image": "vllm/vllm-openai:v0.33.0"}}
    return serving(edited, previous=serving()["status"], generation=2, edit_waits=True)


def being_deleted():
    made = serving()
    return made | {"metadata": made["metadata"] | {"deletionTimestamp": "2026-11-29T12:00:00Z"}}


def edited_since():
    made = serving()
    return made | {"metadata": made["metadata"] | {"generation": 2}}


def missing_secret():
    words = 'secret "hf" not found'
    creating = status_of("probe", {"waiting": {"reason": "CreateContainerConfigError", "message": words}})
    return world(dep=deployment(available=0), pods=[make_pod(probe=creating)])


PHASES = {
    "just made, no operator yet": (lambda: document() | {"status": UNSEEN}, "Progressing", "InProgress"),
    "no children yet": (world, "Progressing", "InProgress"),
    "the probe runs": (
        lambda: world(dep=deployment(available=0), pods=[make_pod(probe=status_of("probe", RUNNING))]),
        "Progressing",
        "InProgress",
    ),
    "serves": (serving, "Healthy", "Current"),
    "serves an older spec": (edited_since, "Progressing", "InProgress"),
    "rolls": (
        lambda: world(dep=deployment(wanted=2, updated=1, available=1), pods=[serving_pod]),
        "Progressing",
        "InProgress",
    ),
    "invalid edit over serving pods": (
        lambda: serving(previous=serving()["status"], problems=("spec.engine.extraArgs[0]: remove it",), generation=2),
        "Degraded",
        "Failed",
    ),
    "rolled back": (lambda: held(RevisionState(updated="q36-1", held="Held at 1.")), "Degraded", "Failed"),
    "the operator is too old": (
        lambda: held(RevisionState(updated="q36-1", blocked=Blocked("NewerFormat", "Newer."))),
        "Degraded",
        "Failed",
    ),
    "the probe refuses": (refused_by_the_probe, "Degraded", "Failed"),
    "a name is taken": (
        lambda: world(apply_error="Service q36 is taken.", apply_reason="NameTaken"),
        "Degraded",
        "Failed",
    ),
    "a NetworkPolicy is refused, the pods serve": (
        lambda: serving(beside_error="NetworkPolicy q36 is taken.", beside_reason="NameTaken"),
        "Degraded",
        "Failed",
    ),
    "waits for a GPU": (
        lambda: waiting("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        "Progressing",
        "InProgress",
    ),
    "waits for a Secret": (missing_secret, "Progressing", "InProgress"),
    "paused while it serves": (lambda: serving({"lifecycle": "Paused"}), "Suspended", "Current"),
    "paused before anything was made": (lambda: world({"lifecycle": "Paused"}), "Suspended", "InProgress"),
    "paused, an edit waits": (waiting_edit, "Suspended", "InProgress"),
    "stops": (stopping, "Progressing", "InProgress"),
    "stopped": (stopped, "Healthy", "Current"),
    "scaled to zero": (
        lambda: world({"replicas": 0}, dep=deployment(wanted=0, updated=0, available=0)),
        "Healthy",
        "Current",
    ),
    "is being deleted": (being_deleted, "Progressing", "Terminating"),
}


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_is_what_argo_cd_and_flux_should_show(gitops, phase):
    make, argocd, kstatus = PHASES[phase]
    [(health, message, status)] = gitops.verdicts([make()])
    assert (health, status) == (argocd, kstatus), message
    assert message.endswith((".", "deletion")), "the tool shows no sentence"


def test_the_cause_is_what_argo_cd_shows(gitops):
    [(_, message, _)] = gitops.verdicts([refused_by_the_probe()])
    assert message.startswith("ImageTooOld: ")
    assert "Use a newer image." in message


def test_a_resource_without_any_status_is_no_success_in_argo_cd(gitops):
    # kstatus takes an object without conditions for current, which is why the definition gives it a generation of -1.
    [(health, _, status)] = gitops.verdicts([document()])
    assert (health, status) == ("Progressing", "Current")
