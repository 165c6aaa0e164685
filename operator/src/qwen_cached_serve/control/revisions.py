"""Revisions in the cluster: which one a resource's children are made from, and the ControllerRevisions that store them.

`core.revision` decides; this reads what the decision needs, puts a revision's stored part and the rest of the children
together, and keeps the history. Three things it is careful about:

- a stored revision is read again only when this operator renders the pods otherwise than it says (a hash among its
  labels tells): once per generation of the resource, and when something is applied; comparing and choosing need labels
  and annotations only;
- before a revision is made, the API server is asked for the existing ones: believing a cache that lags would render
  anew, and so restart, what should stay;
- a revision is stored before its children are applied (a new ConfigMap beside it). A process that ends in between
  leaves a revision that the next one finds and applies.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from qwen_cached_serve.control import adoption
from qwen_cached_serve.control.cache import Cache, Key, Snapshot
from qwen_cached_serve.control.composition import applied, compose, revisions_in_use
from qwen_cached_serve.control.desired import Designer, Desired, SpecRefused, content_of, packed
from qwen_cached_serve.control.revision_store import RevisionStore
from qwen_cached_serve.core import changes, revision, stored
from qwen_cached_serve.core.plan import plan_resource
from qwen_cached_serve.core.records import FORMAT, Content, Record, later, record_of
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.core.revision import Blocked, Make, RevisionState, Use
from qwen_cached_serve.core.tuning import Adjustment, Tuning
from qwen_cached_serve.core.volumes import file_key
from qwen_cached_serve.inpod import facts
from qwen_cached_serve.kube.port import CONTROLLER_REVISIONS, Manifest, Port

Whole = Callable[[], Awaitable[Sequence[Manifest]]]

_FOLLOWS = (
    *("lifecycle", "replicas", "service_type", "service_port", "beside", "max_surge", "max_unavailable"),
    *("on_failure", "on_operator_upgrade", "on_compatibility_change", "on_unavailable", "auto_tune", "image_given"),
)
"""What follows the present spec whichever revision runs (parts of `Resolved`)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a resource's children are to be."""

    desired: Desired
    """Of the chosen revision; with `applies` False only what the spec asks for."""
    state: RevisionState
    applies: bool = True
    """Whether the children may be brought to it."""
    record: Record | None = None
    records: tuple[Record, ...] = ()
    """All of the resource's, new ones included."""
    waits: bool = False
    """Whether storing a revision is still due, which a paused resource waits for."""
    store: Callable[[], Awaitable[None]] | None = None
    whole: Whole | None = None
    """The manifests to send, complete."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The last composition of a resource, most looks need nothing else."""

    fresh: Desired
    record: Record
    composed: Desired
    outdated: str


class Revisions:
    """See the module's text."""

    def __init__(self, port: Port, cache: Cache, designer: Designer) -> None:
        self._port = port
        self._cache = cache
        self._designer = designer
        self._store = RevisionStore(port, cache)
        self._kept: dict[Key, _Kept] = {}

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a resource that is gone."""
        self._kept.pop(key, None)
        self._store.forget(key)

    async def choose(self, snapshot: Snapshot, fresh: Desired) -> Choice:
        """Choose the revision for what a resource asks for; `fresh` is how this operator renders that. Only reads.

        Raises:
            ApiError: the API server cannot be asked.

        """
        annotations = snapshot.serve["metadata"].get("annotations") or {}
        records, plain = [record_of(one) for one in snapshot.revisions], fresh
        paused = fresh.resolved.lifecycle == "Paused"
        notes = tuple(filter(None, [revision.restart_note(annotations)]))
        try:
            fresh = await self._tuned(snapshot, plain, records)
            decision = revision.decide(fresh.inputs, records, annotations)
            if isinstance(decision, Make) and not paused and not _brand_new(snapshot):
                records = await self._store.listed(snapshot)
                fresh = await self._tuned(snapshot, plain, records)
                decision = revision.decide(fresh.inputs, records, annotations)
            return await self._carry_out(snapshot, fresh, decision, records, notes)
        except stored.UnreadableRevision as error:
            blocked = Blocked(
                "RevisionUnreadable",
                f"A stored revision cannot be used: {error}. Nothing is changed. Delete that ControllerRevision to "
                "have the pods rendered anew, which may restart them.",
            )
            return _blocked(fresh, blocked, records, snapshot)

    async def prune(self, snapshot: Snapshot, choice: Choice) -> list[str]:
        """Remove the oldest revisions that nothing needs; return what was removed."""
        if not self._cache.complete or choice.record is None:
            return []
        metadata = snapshot.serve["metadata"]
        hold = revision.hold_of((metadata.get("annotations") or {}).get(revision.HOLD_ANNOTATION, ""))
        current = ((snapshot.serve.get("status") or {}).get("revision") or {}).get("current")
        kept = {choice.record.name, hold.revision if hold else "", current or "", *revisions_in_use(snapshot)}
        uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in snapshot.revisions}
        removed = []
        for record in revision.removable(choice.records, kept):
            if record.name not in uids:
                continue
            await self._store.remove(snapshot, record, uids[record.name])
            removed.append(f"{CONTROLLER_REVISIONS.kind}/{record.name}")
        return removed

    async def tune(self, snapshot: Snapshot, plain: Desired, choice: Choice, adjustment: Adjustment) -> None:
        """Store the chosen revision with one more adjustment, as the latest; `plain` is the resource without any."""
        if choice.record is None:
            return
        serve, used = snapshot.serve, choice.record
        image = used.image if plain.inputs.image_from == "Operator" else None  # the frozen one
        fresh = self._designer.tuned(serve, plain, (*choice.state.tuning, adjustment), image)
        content = content_of(serve["spec"], self._designer.whole(fresh), fresh.tuning)
        resource = serve["metadata"]["name"], serve["metadata"]["uid"]
        config_map = content.config_map["metadata"]["name"]
        made = Make(used.restarted_at)
        record = revision.new_record(fresh.inputs, content.hash, config_map, choice.records, resource, made)
        await self._store.create(snapshot, record, content)

    async def _tuned(self, snapshot: Snapshot, plain: Desired, records: Sequence[Record]) -> Desired:
        """Go on with what was adjusted for this spec before."""
        last = revision.last_tuned(plain.inputs, records)
        if last is None or last.format > FORMAT:
            return plain
        return self._designer.tuned(snapshot.serve, plain, await self._store.tuning(snapshot, last))

    async def reject(self, snapshot: Snapshot, choice: Choice, instead: str) -> None:
        """Remember that the roll to the chosen revision failed, and what is used in its place from now on."""
        if choice.record is not None:
            await self._store.mark(snapshot, dataclasses.replace(choice.record, rejected_for=instead))

    async def _carry_out(
        self,
        snapshot: Snapshot,
        fresh: Desired,
        decision: revision.Decision,
        records: list[Record],
        notes: tuple[str, ...],
    ) -> Choice:
        if isinstance(decision, Blocked):
            return _blocked(fresh, decision, records, snapshot)
        if isinstance(decision, Use):
            differs = decision.record.content_hash != fresh.content_hash
            if differs and not decision.held and fresh.resolved.on_operator_upgrade == "Roll":
                decision = revision.rolled(decision.record, fresh.content_hash, fresh.inputs, records)
        if isinstance(decision, Use):
            return await self._use(snapshot, fresh, decision, records, notes)
        if fresh.resolved.lifecycle == "Paused":
            state = RevisionState(
                updated=applied(snapshot), history=revision.history(records, applied(snapshot)), notes=notes
            )
            return Choice(fresh, state, applies=False, records=tuple(records), waits=bool(records))
        return await self._make(snapshot, fresh, decision, records, notes)

    async def _use(
        self, snapshot: Snapshot, fresh: Desired, use: Use, records: list[Record], notes: tuple[str, ...]
    ) -> Choice:
        record, others, store = use.record, records, None
        if not use.latest and not use.held:
            record = revision.renumbered(record, records)
            others = [record if one.name == record.name else one for one in records]

            async def store() -> None:
                await self._store.mark(snapshot, record)

        kept = self._kept.get(_key(snapshot))
        if kept is None or kept.fresh is not fresh or kept.record.name != record.name:
            content = await self._content(snapshot, fresh, record)
            kept = self._keep(snapshot, fresh, record, content, held=use.held)

        async def whole() -> Sequence[Manifest]:
            return compose(self._designer.whole(fresh), record, await self._content(snapshot, fresh, record))

        held = revision.held_words(record, use.rejected) if use.held else ""
        tuning = await self._store.tuning(snapshot, record)
        return Choice(
            desired=kept.composed,
            state=_state(record, others, kept.outdated, notes, held=held, tuning=tuning),
            applies=fresh.resolved.lifecycle != "Paused",
            record=record,
            records=tuple(others),
            store=store,
            whole=whole,
        )

    async def _make(
        self, snapshot: Snapshot, fresh: Desired, made: Make, records: list[Record], notes: tuple[str, ...]
    ) -> Choice:
        serve = snapshot.serve
        resource = serve["metadata"]["name"], serve["metadata"]["uid"]
        new: list[tuple[Record, Content]] = []
        content = content_of(serve["spec"], self._designer.whole(fresh), fresh.tuning)
        inputs = fresh.inputs
        running = None if records else await adoption.running(self._port, snapshot, fresh, content)
        restart = made.requested and later(made.restarted_at, running.restarted_at if running else "")
        if running and running.settled and not restart:
            content = running.content
            inputs = dataclasses.replace(inputs, image=inputs.image if inputs.image_from == "Spec" else running.image)
            made = dataclasses.replace(made, restarted_at=running.restarted_at)
        elif running:
            unknown = dataclasses.replace(inputs, spec_hash="", image=running.image)
            former = revision.new_record(
                unknown,
                running.content.hash,
                running.content.config_map["metadata"]["name"],
                records,
                resource,
                Make(running.restarted_at),
            )
            new.append((former, running.content))
        everyone = [*records, *(record for record, _ in new)]
        config_map = content.config_map["metadata"]["name"]
        record = revision.new_record(inputs, content.hash, config_map, everyone, resource, made)
        new.append((record, content))
        other = None if content.hash == fresh.content_hash else content
        kept = self._keep(snapshot, fresh, record, other, held=False)

        async def store() -> None:
            for each, data in new:
                await self._store.create(snapshot, each, data)

        async def whole() -> Sequence[Manifest]:
            return compose(self._designer.whole(fresh), record, other)

        everyone.append(record)
        return Choice(
            desired=kept.composed,
            state=_state(record, everyone, kept.outdated, notes, tuning=fresh.tuning),
            record=record,
            records=tuple(everyone),
            store=store,
            whole=whole,
        )

    def _keep(
        self, snapshot: Snapshot, fresh: Desired, record: Record, content: Content | None, *, held: bool
    ) -> _Kept:
        resolved, plan, outdated = fresh.resolved, fresh.plan, ""
        if content is not None:
            resolved = self._resolved_of(snapshot.serve, fresh.resolved, record, content)
            plan = plan_resource(resolved)
            rendered = content_of(snapshot.serve["spec"], self._designer.whole(fresh))
            outdated = "" if held else changes.in_words(changes.changes(content, rendered))
        composed = dataclasses.replace(
            fresh,
            resolved=resolved,
            plan=plan,
            text=packed(compose(self._designer.whole(fresh), record, content)),
        )
        kept = _Kept(fresh, record, composed, outdated)
        self._kept[_key(snapshot)] = kept
        return kept

    def _resolved_of(self, serve: Manifest, fresh: Resolved, record: Record, content: Content) -> Resolved:
        """Return what the stored pods run with, as far as this release can tell: the status speaks of it."""
        try:
            found = self._designer.resolved_as_stored(serve, content.spec, record.image)
            text = (content.config_map.get("data") or {}).get(file_key(facts.SETTINGS_FILE), "{}")
            found = dataclasses.replace(found, settings=facts.load(facts.ServeSettings, json.loads(text)))
        except (SpecRefused, facts.FactsError, ValueError):
            return dataclasses.replace(fresh, image=record.image)
        return dataclasses.replace(found, **{name: getattr(fresh, name) for name in _FOLLOWS})

    async def _content(self, snapshot: Snapshot, fresh: Desired, record: Record) -> Content | None:
        """Read what a revision stores; None when this operator renders the same."""
        return None if record.content_hash == fresh.content_hash else await self._store.load(snapshot, record)


def _key(snapshot: Snapshot) -> Key:
    metadata = snapshot.serve["metadata"]
    return metadata["namespace"], metadata["name"]


def _brand_new(snapshot: Snapshot) -> bool:
    # The definition itself gives every new resource a status: the generation -1.
    return not snapshot.children and not (snapshot.serve.get("status") or {}).get("conditions")


def _blocked(fresh: Desired, blocked: Blocked, records: Sequence[Record], snapshot: Snapshot) -> Choice:
    used = applied(snapshot)
    state = RevisionState(updated=used, history=revision.history(records, used), blocked=blocked)
    return Choice(fresh, state, applies=False, records=tuple(records))


def _state(
    record: Record,
    records: Sequence[Record],
    outdated: str,
    notes: tuple[str, ...],
    *,
    held: str = "",
    tuning: Tuning = (),
) -> RevisionState:
    return RevisionState(
        updated=record.name,
        history=revision.history(records, record.name),
        held=held,
        outdated=outdated,
        notes=notes,
        tuning=tuning,
    )
