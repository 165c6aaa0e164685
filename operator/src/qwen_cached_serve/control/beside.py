"""What of a resource's children can be worked on: those of optional kinds that cannot be used become words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qwen_cached_serve.control.apply import FAILED_AGAIN_SECONDS, REFUSED_AGAIN_SECONDS, Refusal
from qwen_cached_serve.control.optional import Unusable
from qwen_cached_serve.kube.port import OPTIONAL, Manifest, Resource, resource_of

Problem = Callable[[Resource, str], Unusable | None]


@dataclass(frozen=True, slots=True)
class ByUse:
    """Manifests by whether their kinds can be used."""

    usable: tuple[Manifest, ...]
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    """About kinds that the cluster does not have: no fault of the resource."""


def by_use(manifests: Sequence[Manifest], problem: Problem) -> ByUse:
    """Sort manifests; only optional kinds can be out of use."""
    usable, refusals, notes = [], [], []
    for manifest in manifests:
        kind, metadata = resource_of(manifest), manifest["metadata"]
        found = problem(kind, metadata["namespace"]) if kind in OPTIONAL else None
        if found is None:
            usable.append(manifest)
        elif found.reason == "NotServed":
            notes.append(f"no {kind.kind} is made: {found.message}; it will be made as soon as it is served")
        else:
            again = REFUSED_AGAIN_SECONDS if found.reason == "ApplyForbidden" else FAILED_AGAIN_SECONDS
            refusals.append(Refusal(kind.kind, metadata["name"], found.reason, found.message, again))
    return ByUse(tuple(usable), tuple(refusals), tuple(notes))


def optional_kinds(manifests: Sequence[Manifest]) -> set[Resource]:
    """Return the optional kinds among manifests."""
    return {resource_of(manifest) for manifest in manifests} & set(OPTIONAL)
