"""Tiers behind the cache server's memory: from the resource to what the pod is told, what is mounted, and what its
environment holds.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.environment import SecretKeySelector
from qwen_cached_serve.api.v1alpha1.tiers import L2Tier as TierSpec
from qwen_cached_serve.inpod import credentials
from qwen_cached_serve.inpod.facts import L2_DIR, L2Tier


def tiers(specs: Sequence[TierSpec]) -> tuple[L2Tier, ...]:
    """The tiers as the pod knows them; `api.rules` sees to it that each has the block of its type."""
    return tuple(_tier(spec) for spec in specs)


def claims(specs: Sequence[TierSpec]) -> dict[str, str]:
    """Claim of every file-system tier by the tier's name; each is mounted below `L2_DIR` under that name."""
    return {spec.name: spec.filesystem.claim_name for spec in specs if spec.filesystem}


def secret_variables(specs: Sequence[TierSpec]) -> dict[str, SecretKeySelector]:
    """Key of the Secret behind every variable of the cache server that a tier's secrets come in."""
    return {credentials.variable(spec.name, secret): selector for spec in specs for secret, selector in _secrets(spec)}


def _tier(spec: TierSpec) -> L2Tier:
    made = L2Tier(spec.name, spec.type, secrets=tuple(secret for secret, _ in _secrets(spec)))
    if spec.filesystem:
        path = posixpath.normpath(posixpath.join(L2_DIR, spec.name, spec.filesystem.path or ""))
        return replace(made, path=path, capacity_bytes=_bytes(spec.filesystem.capacity))
    if spec.valkey:
        store = spec.valkey
        return replace(
            made,
            endpoint=store.endpoint,
            tls=(store.tls or defaults.VALKEY_TLS) == "Enabled",
            cluster=(store.topology or defaults.VALKEY_TOPOLOGY) == "Cluster",
            username=store.username or "",
        )
    if spec.s3:
        bucket = spec.s3
        return replace(
            made,
            endpoint=bucket.endpoint,
            region=bucket.region,
            tls=(bucket.tls or defaults.S3_TLS) == "Enabled",
            identity=bucket.dedicated_to or "",
            capacity_bytes=_bytes(bucket.capacity),
        )
    assert spec.resp is not None  # noqa: S101 - rule cache.l2-resp-block
    return replace(
        made,
        endpoint=spec.resp.endpoint,
        identity=spec.resp.dedicated_to,
        username=spec.resp.username or "",
    )


def _secrets(spec: TierSpec) -> Iterator[tuple[str, SecretKeySelector]]:
    for store in (spec.valkey, spec.resp):
        if store and store.password_secret_key_ref:
            yield credentials.PASSWORD, store.password_secret_key_ref
    if spec.s3 and spec.s3.credentials:
        yield credentials.ACCESS_KEY_ID, spec.s3.credentials.access_key_id_secret_key_ref
        yield credentials.SECRET_ACCESS_KEY, spec.s3.credentials.secret_access_key_secret_key_ref


def _bytes(size: int | str | None) -> int:
    return 0 if size is None else quantity.to_bytes(size)
