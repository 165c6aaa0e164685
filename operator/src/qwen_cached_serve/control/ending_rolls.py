"""A roll that was begun pod by pod ends so, also when the resource was scaled to one pod or stopped meanwhile.

The reason is `core.children.strategy.strategy_now`; here the manifests of a choice get its answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from qwen_cached_serve.control import drift
from qwen_cached_serve.control.cache import Snapshot
from qwen_cached_serve.control.revisions import Choice
from qwen_cached_serve.core.children.strategy import strategy_now
from qwen_cached_serve.kube.port import DEPLOYMENTS, Manifest


def with_strategy_now(choice: Choice, snapshot: Snapshot) -> Choice:
    """Return the choice with the strategy that the Deployment's controller can act on now."""
    in_use = sum(bool((one.get("spec") or {}).get("replicas")) for one in snapshot.replica_sets)
    if in_use <= 1:  # nearly always
        return choice
    desired = choice.desired.with_manifests(_shaped(choice.desired.manifests(), in_use))
    whole = choice.whole
    if whole is None:
        return dataclasses.replace(choice, desired=desired)

    async def shaped() -> Sequence[Manifest]:
        return _shaped(await whole(), in_use)

    return dataclasses.replace(choice, desired=desired, whole=shaped)


def _shaped(manifests: Iterable[Manifest], in_use: int) -> list[Manifest]:
    return [_with_strategy(one, in_use) if one["kind"] == DEPLOYMENTS.kind else one for one in manifests]


def _with_strategy(deployment: Manifest, in_use: int) -> Manifest:
    spec = deployment["spec"]
    now = strategy_now(spec["strategy"], in_use)
    return deployment if now is spec["strategy"] else drift.stamped({**deployment, "spec": {**spec, "strategy": now}})
