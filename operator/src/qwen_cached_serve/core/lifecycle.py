"""The conditions about rolling out and serving: kstatus' Ready, Reconciling and Stalled, and who answers.

Ready: the current revision is fully rolled out. Available: somebody answers (the one to page on). Stalled: a person is
needed; never for a missing Secret, volume or GPU. Reconciling and Stalled are never True together, so that kstatus
tells "in progress" from "failed".
"""

from __future__ import annotations

from qwen_cached_serve.core.conditions import Condition
from qwen_cached_serve.core.podstate import Phase
from qwen_cached_serve.core.refusals import shorten
from qwen_cached_serve.core.room import GATED, NOMINATED
from qwen_cached_serve.core.view import View

INVALID_SPEC = "InvalidSpec"
OPTIONAL_CHILD_REFUSED = "OptionalChildRefused"
HOLDS_NO_ROLL = frozenset({INVALID_SPEC, OPTIONAL_CHILD_REFUSED})
"""Reasons of Stalled with which the pods go on as they should: nobody is paged for them (charts/…/files/alerts.yaml).
A spec that is refused changes nothing that runs; a child beside the pods is refused while all of them serve."""

_ON_THE_WAY = {
    Phase.WAITING: "The pod has not been placed on a node yet.",
    Phase.PREPARING: "The node is pulling the image and mounting volumes.",
    Phase.PROBING: "The probe is finding the block size.",
    Phase.CACHE_STARTING: "The cache server is starting.",
    Phase.STARTING: "The engine is loading the model.",
    Phase.NOT_READY: "The engine has started but does not answer its health check.",
    Phase.FAILING: "A container has failed.",
    Phase.SERVING: "The pods answer; the roll is not complete yet.",
}


def spec_accepted(view: View) -> Condition:
    """Can the spec be carried out?"""
    problems = view.subject.problems
    if problems:
        return Condition("SpecAccepted", "False", "Invalid", "; ".join(problems))
    revision = view.subject.revision
    notes = (
        *(view.subject.resolved.warnings if view.subject.resolved else ()),
        *(revision.notes if revision else ()),
        *view.subject.notes,
    )
    if notes:
        return Condition(
            "SpecAccepted",
            "True",
            "AcceptedWithNotes",
            f"The spec can be carried out. {' '.join(map(_sentence, notes))}",
        )
    return Condition("SpecAccepted", "True", "Accepted", "The spec can be carried out.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def ready(view: View) -> Condition:
    """Is what the spec asks for there, completely?"""
    reason, words = _state(view)
    if reason in _DONE and view.subject.edit_waits:
        reason, words = "Paused", "spec.lifecycle is Paused: a pending edit waits, what runs is the spec before it."
    return Condition("Ready", "True" if reason in _DONE else "False", reason, words)


_DONE = frozenset({"Serving", "Stopped", "ScaledToZero"})


def _state(view: View) -> tuple[str, str]:
    """Name the one state that matters most; an optional child that is missing matters when all else is done."""
    reason, words = _state_of_pods(view)
    if reason in _DONE and view.subject.beside_error:
        return view.subject.beside_reason, f"{words} {shorten(view.subject.beside_error)}"
    return reason, words


def _state_of_pods(view: View) -> tuple[str, str]:
    subject, deployment = view.subject, view.deployment
    if subject.problems:
        running = " What runs stays as it is." if view.live else ""
        return INVALID_SPEC, f"{'; '.join(subject.problems)}.{running}"
    if subject.apply_error:
        return subject.apply_reason, f"The children could not be applied: {shorten(subject.apply_error)}"
    if held_back := _held_back(view):
        return held_back
    if deployment is None:
        if subject.resolved and subject.resolved.lifecycle == "Paused":
            return "Paused", "spec.lifecycle is Paused before anything was created."
        return "Creating", "The Deployment is being created."
    if not deployment.current:
        return "RollInProgress", "The Deployment has not taken up the latest spec yet."
    if deployment.wanted == 0:
        return _without_pods(view)
    if view.rolled_out:
        return "Serving", f"{deployment.available} of {deployment.wanted} pods serve the current revision."
    return on_the_way(view)


def _held_back(view: View) -> tuple[str, str] | None:
    """Name what keeps the operator from bringing the pods to what the spec asks for."""
    revision = view.subject.revision
    if revision and revision.blocked:
        return revision.blocked.reason, revision.blocked.message
    if revision and revision.held:
        return "RolledBack", revision.held
    return None


def _without_pods(view: View) -> tuple[str, str]:
    stopped = view.subject.resolved is not None and view.subject.resolved.lifecycle == "Stopped"
    if view.live or view.terminating or (view.deployment and view.deployment.replicas):
        return "Stopping", "The pods are stopping."
    if stopped:
        return "Stopped", "spec.lifecycle is Stopped: no pods run, everything else is kept."
    return "ScaledToZero", "spec.replicas is 0."


def on_the_way(view: View) -> tuple[str, str]:
    """Name what an unfinished roll or start waits for: the lasting problem, else the slowest pod's state."""
    if problem := view.problem:
        return problem.code, problem.sentence
    phases = [pod.phase for pod in view.current]
    if view.terminating and set(phases) <= {Phase.SERVING, Phase.WAITING}:
        return "Terminating", "Former pods are stopping; what they hold is free after that."
    if not phases:
        return "RollInProgress", "Pods are being created."
    order = list(Phase)
    # A pod that answers is never what is waited for, though others come later in a start: NotReady, Failing.
    slowest = min((one for one in phases if one is not Phase.SERVING), key=order.index, default=Phase.SERVING)
    late = ""
    if view.deployment and view.deployment.deadline_exceeded:
        late = " This takes longer than spec.engine.startupTimeoutSeconds allows for; it is still loading."
    # "Serving" is the reason of the finished state only.
    reason = "Settling" if slowest is Phase.SERVING else str(slowest)
    return reason, _ON_THE_WAY[slowest] + late


def reconciling(view: View, stuck: Condition) -> Condition:
    """Is the operator, or the cluster, still at work on it?"""
    resolved = view.subject.resolved
    if stuck.status == "True":
        return Condition("Reconciling", "False", stuck.reason, "Nothing more happens without a change.")
    if resolved and resolved.lifecycle == "Paused":
        return Condition("Reconciling", "False", "Paused", "spec.lifecycle is Paused: the operator changes nothing.")
    reason, words = _state(view)
    if reason in _DONE:
        return Condition("Reconciling", "False", "Idle", "Nothing is left to do.")
    return Condition("Reconciling", "True", reason, words)


def stalled(view: View) -> Condition:
    """Is a person needed?"""
    if view.subject.problems:
        return Condition("Stalled", "True", INVALID_SPEC, f"Correct the spec: {'; '.join(view.subject.problems)}.")
    if view.subject.apply_error and view.subject.apply_reason in ("NameTaken", "ApplyRefused"):
        return Condition("Stalled", "True", view.subject.apply_reason, shorten(view.subject.apply_error))
    if held_back := _held_back(view):
        return Condition("Stalled", "True", *held_back)
    problem = view.problem
    if problem and problem.needs_a_person and not view.rolled_out:
        return Condition("Stalled", "True", problem.code, problem.sentence)
    if _state_of_pods(view)[0] in _DONE and view.subject.beside_reason in ("NameTaken", "ApplyRefused"):
        # A reason of its own: with the others, what serves is not what was asked for.
        return Condition("Stalled", "True", OPTIONAL_CHILD_REFUSED, shorten(view.subject.beside_error))
    return Condition("Stalled", "False", "NotStalled", "No person is needed.")


def available(view: View) -> Condition:
    """Does anybody answer?"""
    deployment = view.deployment
    if deployment and deployment.available > 0:
        return Condition(
            "Available", "True", "Serving", f"{deployment.available} of {deployment.wanted} pods answer requests."
        )
    reason, words = _state(view)
    return Condition("Available", "False", "NoPodAvailable" if reason == "Serving" else reason, words)


def capacity_available(view: View) -> Condition:
    """Has every pod found a node, and may it be made?"""
    kind = "CapacityAvailable"
    for pod in view.current:
        if pod.diagnosis and pod.diagnosis.code == GATED:
            return Condition(kind, "Unknown", GATED, pod.diagnosis.sentence)
    if view.terminating:
        return Condition(kind, "Unknown", "Terminating", "Own pods are stopping; what they hold is free after that.")
    problem = view.problem
    if problem and (problem.code.startswith("WaitingFor") or problem.code == "QuotaExceeded"):
        return Condition(kind, "False", problem.code, problem.sentence)
    if problem and problem.code == NOMINATED:
        return Condition(kind, "Unknown", NOMINATED, problem.sentence)
    if any(pod.phase is Phase.WAITING for pod in view.current):
        return Condition(kind, "Unknown", "Scheduling", "A pod has not been placed yet.")
    return Condition(kind, "True", "Placed", "Every pod has a node.")


def revision_current(view: View) -> Condition:
    """Do all pods run what the spec asks for?"""
    kind, resolved, deployment = "RevisionCurrent", view.subject.resolved, view.deployment
    if view.subject.problems:
        return Condition(kind, "False", INVALID_SPEC, "The pods run the last accepted spec.")
    if held_back := _held_back(view):
        return Condition(kind, "False", *held_back)
    if resolved and resolved.lifecycle == "Paused":
        return Condition(kind, "Unknown", "Paused", "spec.lifecycle is Paused: changes of the spec wait.")
    if deployment is None:
        return Condition(kind, "False", "Creating", "The Deployment is being created.")
    if deployment.current and deployment.updated == deployment.replicas == deployment.wanted:
        return _rendered_now(view)
    return Condition(
        kind, "False", "RollInProgress", f"{deployment.updated} of {deployment.wanted} pods run what the spec asks for."
    )


def _rendered_now(view: View) -> Condition:
    kind, revision = "RevisionCurrent", view.subject.revision
    foreign = ""
    if revision and revision.foreign:
        foreign = f" Fields of the pod template that are not this operator's: {', '.join(revision.foreign)}."
    if revision and revision.outdated:
        return Condition(
            kind,
            "False",
            "OperatorChanged",
            "All pods run what the spec asks for, as another release of the operator (or other settings of it) "
            f"rendered it. This one would change: {revision.outdated}. `qcs restart`, the next edit that restarts "
            f"pods, or spec.rollout.onOperatorUpgrade: Roll takes that up.{foreign}",
        )
    return Condition(kind, "True", "Current", f"All pods run what the spec asks for.{foreign}")


def roll_back_to(view: View) -> str:
    """Return the revision that pods go back to by `rollout.onFailure: RollBack`, empty when there is no reason to.

    A roll has failed when something only a person can change keeps a pod of the new revision from starting, as Stalled
    says it; a missing GPU, volume or Secret is waited for.
    """
    resolved, revision = view.subject.resolved, view.subject.revision
    if resolved is None or resolved.on_failure != "RollBack" or resolved.lifecycle != "Running":
        return ""
    if revision is None or _held_back(view) or view.subject.apply_error or view.deployment is None:
        return ""
    former = str((view.subject.previous.get("revision") or {}).get("current") or "")
    # Of this revision's own pods: until its ReplicaSet is seen, those of a broken one before it look current.
    broken = any(
        pod.diagnosis and pod.diagnosis.needs_a_person and pod.pod.revision == revision.updated for pod in view.current
    )
    failed = view.deployment.current and not view.rolled_out and broken
    return former if failed and former != revision.updated and former in revision.history else ""
