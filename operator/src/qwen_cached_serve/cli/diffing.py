"""`qcs diff`: what an edit would do, before it is made.

Restarts and their reasons, N before and after, whether cache entries stay readable, and who answers meanwhile. With a
cluster the file is compared with the resource that is there; with `--against` two files are compared and nothing is
asked. `diff_output` prints it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.cli.documents import read_resources
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.history import Stored, fetch
from qwen_cached_serve.cli.refusals import told_as_errors
from qwen_cached_serve.core import changes, revision
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.compatibility import compare
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.difference import differences
from qwen_cached_serve.core.inputs import canonical, spec_hash
from qwen_cached_serve.core.plan import Plan, plan_resource
from qwen_cached_serve.core.predicted_identity import of_resource
from qwen_cached_serve.core.records import Content, Record
from qwen_cached_serve.core.resolve import Resolved, resolve
from qwen_cached_serve.core.revision import Inputs
from qwen_cached_serve.core.tuning import tuning_status
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import Manifest
from qwen_cached_serve.render.manifests import RenderError, render_children

EXPLICIT = ("replicas", "lifecycle", "service", "monitoring", "networkPolicy", "disruptionBudget", "rollout")
"""Parts of a spec that keep the pods and are worth a line when they change."""
_ABSENT = "default"
"""What a field that is not there has."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two resources, taken apart."""

    shape: Mapping[str, Any]
    spec_hash: str
    resolved: Resolved
    plan: Plan
    content: Content

    @property
    def inputs(self) -> Inputs:
        """The key of its revision as long as nothing is tuned."""
        return Inputs(self.spec_hash, "", self.resolved.image, "Spec" if self.resolved.image_given else "Operator")

    @property
    def block_size(self) -> int | None:
        """Predicted N."""
        return self.plan.predicted.block_size if self.plan.predicted else None


@dataclass(frozen=True, slots=True)
class Difference:
    """The answer."""

    name: str
    restarts: bool
    why: tuple[str, ...]
    """Reasons for the restart, or for its absence."""
    other: tuple[str, ...]
    """Changes that keep the pods."""
    reused: Record | None
    block_size: tuple[int | None, int | None]
    probed: int | None
    warm: bool | None
    warm_words: str
    outage: str
    tuning: tuple[str, ...] = ()
    """What the operator adjusted for the running spec and would have to find out again."""


def diff(file: str, against: str | None, namespace: str, origin: Origin, defaults: OperatorDefaults) -> Difference:
    """Compare a file's resource with the one in the cluster, or with another file's.

    Raises:
        CliError: one of them would be refused, or is not there.

    """
    new = _one(file)
    if against is not None:
        return answer(_one(against), new, defaults)
    metadata = new.get("metadata") or {}
    stored = fetch(origin, metadata.get("namespace") or namespace, str(metadata.get("name", "")))
    return answer(stored.resource, new, defaults, stored)


def _one(file: str) -> Manifest:
    documents = read_resources(file)
    if len(documents) != 1:
        raise CliError(f"{file}: holds {len(documents)} resources; diff takes one at a time")
    document: Manifest = documents[0].data
    with told_as_errors():
        parse(document)  # what follows takes it apart
    return document


def answer(old: Manifest, new: Manifest, defaults: OperatorDefaults, stored: Stored | None = None) -> Difference:
    """Compare two resources; `stored` is what the cluster has of the old one, and its pods run the revision in use."""
    used = stored.used if stored else None
    if used and used.image_from == "Operator":
        # What a resource without an image runs is frozen. A new revision would take the operator's present image, which
        # this command line knows only when it is told; the frozen one is the better guess for both sides.
        defaults = OperatorDefaults(used.image, used.image)
    edited = _like(old, new)
    after = _side(edited, defaults)
    try:
        before = _side(_running(_without_status(old), stored), defaults)
    except CliError:
        # Another release stored what runs, and this one would refuse it.
        before = _side(_without_status(old), defaults)
    verdict = _judge(before, after, stored, edited["metadata"].get("annotations") or {})
    warm, warm_words = _warm(before, after, restarts=verdict.restarts)
    status = (stored.status if stored else {}) or {}
    return Difference(
        name=str((new.get("metadata") or {}).get("name", "")),
        restarts=verdict.restarts,
        why=verdict.why,
        other=tuple(_other(old, edited)),
        reused=verdict.reused,
        block_size=(before.block_size, after.block_size),
        probed=(status.get("blockSize") or {}).get("probed"),
        warm=warm,
        warm_words=warm_words,
        outage=_outage(before, after, restarts=verdict.restarts),
        tuning=tuple(_left_behind(after, stored)) if verdict.restarts else (),
    )


def _left_behind(after: Side, stored: Stored | None) -> Iterator[str]:
    """Say what a new spec loses; a restart, and a spec that was tuned itself, lose nothing."""
    used = stored.used if stored else None
    if stored is None or used is None or revision.as_tuned(after.inputs, stored.records).tuning_hash:
        return
    if after.resolved.settings.engine.max_num_seqs is None:
        for one in tuning_status(stored.tunings.get(used.name, ())):
            yield (
                f"{one['name']} {one['value']}, found by the operator for the running spec, is not taken over: set "
                f"spec.engine.vllm.{one['name']} to it, or a start may fail before it is found again"
            )


def _running(old: Manifest, stored: Stored | None) -> Manifest:
    """Return the old resource as its pods are made: held, paused or refused edits are in its spec and not in them."""
    if stored is None or stored.used is None or stored.running is None:
        return old
    now = old["spec"]
    kept = {name: now[name] for name in EXPLICIT if name in now}
    made = {name: value for name, value in stored.running.items() if name not in EXPLICIT}
    engine = made.get("engine") or {}
    if stored.used.image_from == "Spec":
        engine = {**engine, "image": stored.used.image}
    return {**old, "spec": {**made, **({"engine": engine} if engine else {}), **kept}}


def _without_status(resource: Manifest) -> Manifest:
    return {key: value for key, value in resource.items() if key != "status"}


def _like(old: Manifest, new: Manifest) -> Manifest:
    """Return the new resource as it would be stored: under the old one's identity."""
    made = copy.deepcopy(_without_status(new))
    kept = old.get("metadata") or {}
    given = made.get("metadata") or {}
    # As an apply does: what the file does not name stays (a hold, a restart asked for).
    merged = {key: {**(kept.get(key) or {}), **(given.get(key) or {})} for key in ("labels", "annotations")}
    made["metadata"] = {**kept, **{key: value for key, value in merged.items() if value}}
    return made


def _side(resource: Manifest, defaults: OperatorDefaults) -> Side:
    name = (resource.get("metadata") or {}).get("name")
    with told_as_errors(str(name), RenderError):
        parsed = parse(resource)
        resolved = resolve(parsed, defaults)
        whole = {one["kind"]: one for one in render_children(children(resolved, bundle.files()))}
    return Side(
        shape=canonical(parsed.spec),
        spec_hash=spec_hash(parsed.spec),
        resolved=resolved,
        plan=plan_resource(resolved),
        content=Content(
            spec=resource["spec"],
            config_map=whole["ConfigMap"],
            template=whole["Deployment"]["spec"]["template"],
        ),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the pods."""

    restarts: bool
    why: tuple[str, ...]
    reused: Record | None = None


def _judge(before: Side, after: Side, stored: Stored | None, annotations: Mapping[str, str]) -> Verdict:
    if after.resolved.wanted_replicas == 0:
        ends = before.resolved.lifecycle != "Stopped" and after.resolved.lifecycle == "Stopped"
        return Verdict(False, ("spec.lifecycle: Stopped ends all pods" if ends else "no pods are asked for",))
    records = stored.records if stored else ()
    inputs = revision.as_tuned(after.inputs, records)
    decision = revision.decide(inputs, records, annotations) if stored else revision.Make()
    if isinstance(decision, revision.Blocked):
        return Verdict(False, (decision.message,))
    fields = list(differences(before.shape, after.shape, "spec", absent=_ABSENT))
    outdated = stored is not None and stored.condition("RevisionCurrent").get("reason") == "OperatorChanged"
    reused = None
    if isinstance(decision, revision.Use):
        if decision.held:
            fields.append(revision.held_words(decision.record, decision.rejected))
        if stored and stored.used and decision.record.name == stored.used.name:
            if decision.held or not (outdated and after.resolved.on_operator_upgrade == "Roll"):
                return Verdict(False, tuple(fields) or ("nothing that pods are made of changes",))
            fields.append("spec.rollout.onOperatorUpgrade: Roll takes up what the operator renders differently")
        else:
            reused = decision.record
    elif decision.requested:
        fields.append("a restart is asked for")
    elif before.spec_hash == after.spec_hash and before.resolved.image == after.resolved.image:
        return Verdict(False, ("nothing that pods are made of changes",))
    elif outdated:
        fields.append("the pods also take up what the operator renders differently since they were made")
    elif not _tuned(stored) and not changes.changes(before.content, after.content):
        return Verdict(False, (*fields, "the pods come out the same"))
    if after.resolved.lifecycle == "Paused":
        return Verdict(False, (*fields, "spec.lifecycle is Paused: this waits until it is Running again"))
    return Verdict(True, tuple(fields), reused)


def _tuned(stored: Stored | None) -> bool:
    """Whether the running pods have what another spec would begin without."""
    return bool(stored and stored.used and stored.used.tuning_hash)


def _other(old: Manifest, new: Manifest) -> Iterator[str]:
    for name in EXPLICIT:
        yield from differences(old["spec"].get(name), new["spec"].get(name), f"spec.{name}", absent=_ABSENT)


def _warm(before: Side, after: Side, *, restarts: bool) -> tuple[bool | None, str]:
    if not (before.resolved.cached and after.resolved.cached):
        return None, "one of the two has no cache"
    if not restarts:
        return True, "the pods go on with their caches"
    sides = (
        of_resource("old", before.resolved, before.plan, capability=None),
        of_resource("new", after.resolved, after.plan, capability=None),
    )
    found = compare(*sides)
    if found.differences:
        parts = ", ".join(f"{one.component} {one.first or '-'} → {one.second or '-'}" for one in found.differences[:4])
        return False, f"entries of before are not readable: {parts}"
    moved = [one for one in found.unsettled if one.first != one.second]
    if moved:
        return None, f"only the probe will tell: {', '.join(one.component for one in moved[:4])}"
    return True, "shared entries stay readable (as long as tags and branches lead where they did); L1 starts empty"


def _outage(before: Side, after: Side, *, restarts: bool) -> str:
    wanted = after.resolved.wanted_replicas
    if wanted == 0:
        return "no pods run" if before.resolved.wanted_replicas == 0 else "all pods end, nobody answers"
    if before.resolved.wanted_replicas == 0:
        return "nobody answers until the first pod has started"
    if not restarts:
        return "none"
    strategy = children(after.resolved, {}).deployment.strategy
    limit = after.resolved.timing.startup
    if strategy["type"] == "Recreate":
        return f"all {wanted} pods stop before new ones start: nobody answers for one start (at most {limit} s)"
    rolling = strategy["rollingUpdate"]
    away = rolling["maxUnavailable"]
    away = wanted * int(away.removesuffix("%")) // 100 if isinstance(away, str) else away
    if away >= wanted:
        return f"all {wanted} pods may be away at once: nobody answers for one start (at most {limit} s)"
    return (
        f"none expected: at most {rolling['maxUnavailable']} of {wanted} pods are away at a time, "
        f"{rolling['maxSurge']} above that number start beside them"
    )
