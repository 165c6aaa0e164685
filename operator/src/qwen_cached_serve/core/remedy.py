"""When a failure's remedy is applied: `core.tuning` says which, this says whether this is the moment.

The pods must be those of the revision that is applied (a former one's number says nothing about this one), nothing may
keep the operator off, and a revision that was fully rolled out is not changed under pods that serve: then a single
pod's number, of a smaller GPU or a busy one, would restart the others.
"""

from __future__ import annotations

import dataclasses

from qwen_cached_serve.core.diagnose import Diagnosis
from qwen_cached_serve.core.tuning import Adjustment, Declined, decide
from qwen_cached_serve.core.view import View


def remedied(view: View) -> tuple[View, Adjustment | None]:
    """Return the adjustment to make, None for none, and the view with that in the words of the failures."""
    decision = _decision(view)
    if decision is None:
        return view, None
    pods = tuple(
        dataclasses.replace(pod, diagnosis=_reworded(pod.diagnosis, decision)) if pod in view.current else pod
        for pod in view.pods
    )
    adjustment = decision if isinstance(decision, Adjustment) else None
    return dataclasses.replace(view, pods=pods), adjustment


def _decision(view: View) -> Adjustment | Declined | None:
    resolved, revision, deployment = view.subject.resolved, view.subject.revision, view.deployment
    if resolved is None or revision is None or deployment is None or resolved.lifecycle != "Running":
        return None
    if revision.held or revision.blocked or view.subject.apply_error:
        return None
    failures = [pod.diagnosis for pod in view.current if pod.diagnosis and pod.pod.revision == revision.updated]
    decision = decide(failures, resolved, revision.tuning)
    complete = (view.subject.previous.get("revision") or {}).get("current") == revision.updated
    if isinstance(decision, Adjustment) and complete and deployment.available:
        return Declined("other pods of this revision serve with the larger number and would be restarted")
    return decision


def _reworded(diagnosis: Diagnosis | None, decision: Adjustment | Declined) -> Diagnosis | None:
    if diagnosis is None or "availableBlocks" not in diagnosis.numbers:
        return diagnosis
    if isinstance(decision, Declined):
        return dataclasses.replace(
            diagnosis, hint=f"{diagnosis.hint} The operator does not do it by itself: {decision.why}."
        )
    return dataclasses.replace(
        diagnosis, hint=f"The operator lowers {decision.name} to {decision.value}.", needs_a_person=False
    )
