"""Which revision the pods are to be at (DESIGN D10): a pure decision over the stored ones.

A *revision* is the pods' part of the rendered children for one key, (spec, image, tuning), stored in a
ControllerRevision whose data never changes. The same key gives the same revision again, byte for byte, whichever
release of the operator looks at it; only a new key is rendered anew. What a revision carries beside its data stands in
labels and annotations (`core.records`), so that choosing one never reads the data:

- a number, as Deployments and StatefulSets have it: the highest is the latest one asked for;
- hashes of spec and tuning, the image and whether the spec or the operator named it, a hash of the content;
- the restart it was made for, and the newest restart asked for so far: an older request does nothing, nor does its
  removal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwen_cached_serve.core import names
from qwen_cached_serve.core.inputs import digest
from qwen_cached_serve.core.records import FORMAT, RESTART_ANNOTATION, ImageSource, Record, later, latest, moment
from qwen_cached_serve.core.tuning import Tuning

HISTORY_LIMIT = 10
"""Revisions kept beside the one in use, when nothing else needs them; Deployments have the same number."""

HOLD_ANNOTATION = f"{names.GROUP}/hold"
"""On the resource: `REVISION@HASH`, use that revision while the spec is the one with this hash (`held_off`)."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The key of a revision, as a resource asks for it now."""

    spec_hash: str
    tuning_hash: str
    image: str
    image_from: ImageSource


@dataclass(frozen=True, slots=True)
class Use:
    """Apply a stored revision."""

    record: Record
    latest: bool = True
    """Whether it has the highest number; otherwise it gets the next one."""
    held: bool = False
    rejected: Record | None = None
    """The revision in whose place it is held, when that was rejected; None when somebody asked for the hold."""


@dataclass(frozen=True, slots=True)
class Make:
    """Store what this operator renders as a new revision, with this restart in it."""

    restarted_at: str = ""
    requested: bool = False
    """Whether a restart was asked for."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Change nothing."""

    reason: str
    message: str


Decision = Use | Make | Blocked


@dataclass(frozen=True, slots=True)
class RevisionState:
    """What a status says about revisions."""

    updated: str = ""
    """Name of the revision that is applied; empty while there is none."""
    history: tuple[str, ...] = ()
    """The others, newest first."""
    held: str = ""
    """A sentence while a rollback holds."""
    blocked: Blocked | None = None
    outdated: str = ""
    """What this operator would render differently; empty when that is nothing."""
    notes: tuple[str, ...] = ()
    tuning: Tuning = ()
    """What the operator adjusted in the revision that is applied."""
    foreign: tuple[str, ...] = ()
    """Fields of the pod template that somebody else put there, each with its manager."""


def decide(inputs: Inputs, records: Sequence[Record], annotations: Mapping[str, str]) -> Decision:
    """Choose for a resource that asks for `inputs` and has these annotations."""
    foreign = sorted(record.name for record in records if record.format > FORMAT)
    if foreign:
        return Blocked(
            "NewerFormat",
            f"ControllerRevision {', '.join(foreign)} was stored by a newer release of the operator, in a format that "
            "this one does not read: nothing is changed. Upgrade the operator again, or delete that ControllerRevision "
            "to have this release render the pods anew, which may restart them.",
        )
    held = _held(inputs, records, annotations.get(HOLD_ANNOTATION, ""))
    if held:
        return held
    restart = requested_restart(annotations)
    if restart and later(restart, newest_restart(records)):
        return Make(restart, requested=True)
    found = matching(inputs, records)
    if found is None:
        return Make()
    instead = next((record for record in records if record.name == found.rejected_for), None)
    if instead:
        return Use(instead, held=True, rejected=found)
    return Use(found, latest=found.number == max(record.number for record in records))


def rolled(used: Record, content_hash: str, inputs: Inputs, records: Sequence[Record]) -> Use | Make:
    """Choose for `onOperatorUpgrade: Roll`, when this operator renders `used` differently, with this content's hash.

    A release that comes back finds what it stored itself. Making that again would meet its name, and the API server
    refuses other data under it: the spec that is stored beside the content may have changed in what keeps the pods.
    """
    own = [one for one in records if (one.content_hash, one.restarted_at) == (content_hash, used.restarted_at)]
    found = matching(inputs, own)
    if found is None:
        return Make(used.restarted_at)
    return Use(found, latest=found.number == max(record.number for record in records))


def matching(inputs: Inputs, records: Iterable[Record]) -> Record | None:
    """Return the latest revision for this key.

    A spec that names its image is matched by that image. One that names none is matched by the revision made when it
    named none, whichever image the operator had then: it is frozen.
    """
    tuned_alike = (record for record in records if record.tuning_hash == inputs.tuning_hash)
    return last_tuned(inputs, tuned_alike)


def last_tuned(inputs: Inputs, records: Iterable[Record]) -> Record | None:
    """Return the latest revision for this key whatever was tuned: its tuning is the one to go on with."""
    fits = [
        record
        for record in records
        if record.spec_hash == inputs.spec_hash
        and (record.image == inputs.image if inputs.image_from == "Spec" else record.image_from == "Operator")
    ]
    return max(fits, key=lambda record: record.number, default=None)


def as_tuned(inputs: Inputs, records: Iterable[Record]) -> Inputs:
    """Return the key with the tuning that this spec has had so far."""
    last = last_tuned(inputs, records)
    return replace(inputs, tuning_hash=last.tuning_hash if last else "")


def new_record(
    inputs: Inputs, content_hash: str, config_map: str, records: Sequence[Record], resource: tuple[str, str], made: Make
) -> Record:
    """Return the record of a new revision; `resource` is the name and uid of its owner.

    The name follows from everything that distinguishes it, so that making it twice meets itself.
    """
    name, uid = resource
    key = (uid, inputs.spec_hash, inputs.tuning_hash, inputs.image, inputs.image_from, content_hash, made.restarted_at)
    return Record(
        name=names.revision_name(name, digest(list(key))),
        number=max((record.number for record in records), default=0) + 1,
        format=FORMAT,
        spec_hash=inputs.spec_hash,
        tuning_hash=inputs.tuning_hash,
        content_hash=content_hash,
        image=inputs.image,
        image_from=inputs.image_from,
        config_map=config_map,
        restarted_at=made.restarted_at,
        restart_seen=latest(made.restarted_at, newest_restart(records)),
    )


def renumbered(record: Record, records: Sequence[Record]) -> Record:
    """Return the record as the latest one: the spec went back to it."""
    number = max(other.number for other in records) + 1
    return replace(record, number=number, restart_seen=latest(record.restart_seen, newest_restart(records)))


def history(records: Iterable[Record], used: str) -> tuple[str, ...]:
    """Return the names of the revisions beside the one in use, newest first."""
    ordered = sorted(records, key=lambda record: -record.number)
    return tuple(record.name for record in ordered if record.name != used)[:HISTORY_LIMIT]


def removable(records: Sequence[Record], kept: Iterable[str], limit: int = HISTORY_LIMIT) -> list[Record]:
    """Return the oldest revisions beyond the limit; those in `kept` (in use, held, named by a pod or a ReplicaSet)
    stay and do not count.
    """
    needed = set(kept)
    # The newest restart has to be remembered, and the latest number carries it.
    newest = max(records, key=lambda record: record.number, default=None)
    spare = [record for record in records if record.name not in needed and record is not newest]
    return sorted(spare, key=lambda record: -record.number)[limit:]


@dataclass(frozen=True, slots=True)
class Hold:
    """A rollback as the annotation says it."""

    revision: str
    spec_hash: str
    """The spec that is held off."""

    def text(self) -> str:
        """Return the annotation's value."""
        return f"{self.revision}@{self.spec_hash}"


def hold_of(text: str) -> Hold | None:
    """Read the hold annotation; None when it says nothing usable."""
    revision, separator, spec = text.strip().partition("@")
    return Hold(revision, spec) if separator and revision and spec else None


def held_off(spec_hash: str, image: str) -> str:
    """Return the hash of the spec that a hold keeps off; `image` as the spec names it, empty when it names none.

    Unlike the key of a revision it must tell apart two specs that differ in nothing but the image they name: another
    image is the edit that mostly follows a rollback.
    """
    return digest([spec_hash, image]) if image else spec_hash


def _held(inputs: Inputs, records: Sequence[Record], text: str) -> Use | Blocked | None:
    hold = hold_of(text)
    if hold is None or hold.spec_hash != held_off(
        inputs.spec_hash, inputs.image if inputs.image_from == "Spec" else ""
    ):
        return None
    record = next((record for record in records if record.name == hold.revision), None)
    if record is None:
        return Blocked(
            "HoldUnknown",
            f"The annotation {HOLD_ANNOTATION} asks for revision {hold.revision}, which is not there: nothing is "
            "changed. `qcs history` lists those that are; change the annotation or remove it.",
        )
    return Use(record, held=True)


def held_words(record: Record, rejected: Record | None = None) -> str:
    """Return what a resource says while a rollback holds."""
    if rejected:
        return (
            f"The roll to revision {rejected.number} ({rejected.name}) failed, so the pods are back at revision "
            f"{record.number} ({record.name}), as spec.rollout.onFailure says. Change the spec; `qcs restart` tries "
            "the same spec again."
        )
    return (
        f"The pods are held at revision {record.number} ({record.name}) by the annotation {HOLD_ANNOTATION}. "
        "Change the spec, or remove the annotation to go on with the spec as it is."
    )


def requested_restart(annotations: Mapping[str, str]) -> str:
    """Return the restart that a resource asks for, empty when it asks for none that can be read."""
    text = annotations.get(RESTART_ANNOTATION, "")
    return text if moment(text) else ""


def restart_note(annotations: Mapping[str, str]) -> str:
    """Return what is wrong with a request for a restart, empty when nothing is."""
    text = annotations.get(RESTART_ANNOTATION, "")
    if not text or moment(text):
        return ""
    return f"the annotation {RESTART_ANNOTATION} is no time such as 2026-11-29T12:00:00Z and asks for nothing"


def newest_restart(records: Iterable[Record]) -> str:
    """Return the newest restart that was asked for or made; one that is not later does nothing."""
    return latest(*(text for record in records for text in (record.restarted_at, record.restart_seen)))
