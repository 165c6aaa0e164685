"""`qcs rollback`: hold the pods at a stored revision until the spec changes.

It writes one annotation of the resource (as the person who calls it; the operator never writes there, D2). The
annotation names the spec that is held off, so it loses its effect by itself with the next edit.
"""

from __future__ import annotations

from qwen_cached_serve.cli.cluster import ask
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.history import Stored, read
from qwen_cached_serve.core.records import Record
from qwen_cached_serve.core.revision import HOLD_ANNOTATION, Hold
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import SERVES


def roll_back(origin: Origin, namespace: str, name: str, to: int | None) -> str:
    """Set the annotation; return what was done as a sentence.

    Raises:
        CliError: nothing to roll back to, or it would have no effect now.

    """

    async def work(client: KubeClient) -> str:
        stored = await read(client, namespace, name)
        target, latest = choose(stored, to)
        back = target.name == latest.name
        value = None if back else Hold(target.name, stored.held_off).text()
        await client.annotate(SERVES, namespace, name, {HOLD_ANNOTATION: value})
        if back:
            return f"{name}: the hold is taken off; its pods go to revision {target.number}, which the spec asks for"
        return (
            f"{name}: its pods are held at revision {target.number} ({target.name}) until the spec changes; "
            f"`qcs rollback {name} -n {namespace} --to {latest.number}` takes the hold off"
        )

    return ask(origin, work)


def choose(stored: Stored, to: int | None) -> tuple[Record, Record]:
    """Return the revision to hold at, and the one that the spec asks for.

    Raises:
        CliError: see `roll_back`.

    """
    name = stored.resource["metadata"]["name"]
    used = stored.used
    if not stored.records or used is None:
        raise CliError(f"{name}: no revision is stored yet; the operator stores one when it makes the pods")
    if stored.status.get("observedGeneration") != stored.resource["metadata"].get("generation"):
        raise CliError(f"{name}: the operator has not looked at the latest spec yet; try again when it has")
    if (stored.resource.get("spec") or {}).get("lifecycle") == "Paused":
        raise CliError(f"{name}: spec.lifecycle is Paused, so nothing would change; set it to Running first")
    if stored.condition("SpecAccepted").get("status") != "True":
        raise CliError(f"{name}: the spec was refused and its pods run the one before already; correct the spec")
    latest = stored.records[0]
    if to is None:
        target = next((record for record in stored.records if _before(record, used)), None)
        if target is None:
            raise CliError(f"{name}: there is no revision before {used.number} that could be gone back to")
    else:
        target = next((record for record in stored.records if record.number == to), None)
        if target is None:
            known = ", ".join(str(record.number) for record in stored.records)
            raise CliError(f"--to {to}: {name} has no such revision; there are {known}")
    if target.rejected_for:
        raise CliError(
            f"--to {target.number}: that roll failed and was rolled back; `qcs restart {name}` tries it again"
        )
    if target.name == used.name:
        raise CliError(f"{name}: revision {target.number} is in use already")
    return target, latest


def _before(record: Record, used: Record) -> bool:
    """Whether it is one that somebody means by "the one before".

    Not one whose roll failed, and not the same spec before the operator tuned it: its engine did not start.
    """
    same = (record.spec_hash, record.image) == (used.spec_hash, used.image)
    untuned = same and record.tuning_hash != used.tuning_hash
    return record.number < used.number and not record.rejected_for and not untuned
