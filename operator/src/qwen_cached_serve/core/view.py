"""Everything a condition is judged from, gathered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qwen_cached_serve.core.diagnose import Diagnosis
from qwen_cached_serve.core.observed import DeploymentObservation
from qwen_cached_serve.core.plan import Plan
from qwen_cached_serve.core.podstate import Phase, PodJudgement
from qwen_cached_serve.core.refusals import diagnose_pod_creation
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.core.revision import RevisionState
from qwen_cached_serve.core.room import waits_for_room


@dataclass(frozen=True, slots=True)
class Subject:
    """The resource side: what is asked for, and what the last status said."""

    generation: int
    resolved: Resolved | None
    """None when the spec was refused; `problems` says why then."""
    plan: Plan | None = None
    probed_with: str = ""
    """Digest of everything that N depends on (`core.probed_with`), empty when the spec was refused."""
    problems: tuple[str, ...] = ()
    previous: Mapping[str, Any] = field(default_factory=dict)
    """The status as it is stored now."""
    edit_waits: bool = False
    """Whether spec.lifecycle is Paused and the live children are not those that the spec asks for."""
    revision: RevisionState | None = None
    """None when the spec was refused."""
    apply_error: str = ""
    """Why the children could not be applied, in the API server's words; empty when they were."""
    apply_reason: str = "ApplyFailed"
    """Kind of that refusal: `NameTaken` (somebody else's object has the name), `ApplyRefused` or `ApplyForbidden`."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Evictions that the API server has just refused: by the pod's uid, in its words."""
    beside_error: str = ""
    """Why an optional child (NetworkPolicy, PodDisruptionBudget, PodMonitor) is not as asked; empty when all are. The
    pods roll all the same."""
    beside_reason: str = ""
    """Kind of that refusal, as above, or `ApplyFailed`."""
    notes: tuple[str, ...] = ()
    """About what the cluster does not have; no fault of the spec."""


@dataclass(frozen=True, slots=True)
class View:
    """Subject and judged pods side by side."""

    subject: Subject
    deployment: DeploymentObservation | None
    pods: tuple[PodJudgement, ...]

    @property
    def live(self) -> tuple[PodJudgement, ...]:
        """Pods that run or will run."""
        return tuple(pod for pod in self.pods if pod.phase not in (Phase.TERMINATING, Phase.ENDED))

    @property
    def current(self) -> tuple[PodJudgement, ...]:
        """Live pods of the template that the spec asks for.

        While the Deployment has not taken that up, and until its ReplicaSet is seen, the template's hash is not known:
        then all live ones but those of another revision, whose failures say nothing about this one.
        """
        deployment, revision = self.deployment, self.subject.revision
        if deployment and deployment.current and deployment.template_hash:
            return tuple(pod for pod in self.live if pod.pod.template_hash == deployment.template_hash)
        known = ("", revision.updated) if revision and revision.updated else None
        return tuple(pod for pod in self.live if known is None or pod.pod.revision in known)

    @property
    def terminating(self) -> bool:
        """Whether own pods still hold what new ones wait for."""
        return any(pod.phase is Phase.TERMINATING for pod in self.pods)

    @property
    def problem(self) -> Diagnosis | None:
        """What keeps the resource from being ready, the most lasting first; None while it is just starting."""
        found = [pod.diagnosis for pod in self.current if pod.diagnosis]
        if self.deployment and self.deployment.creation_failure:
            found.append(diagnose_pod_creation(self.deployment.creation_failure))
        if self.terminating:
            found = [entry for entry in found if not waits_for_room(entry.code)]
        return min(found, key=lambda entry: (not entry.needs_a_person, entry.code), default=None)

    @property
    def rolled_out(self) -> bool:
        """Whether exactly the wanted pods exist, all of the current template and available."""
        deployment = self.deployment
        return (
            deployment is not None
            and deployment.current
            and not self.terminating
            and (deployment.wanted == deployment.replicas == deployment.updated == deployment.available)
        )
