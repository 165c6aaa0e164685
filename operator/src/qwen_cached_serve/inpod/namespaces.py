"""A place of its own for every compatibility identity in stores that outlive a pod (DESIGN D8).

LMCache's keys do not hold what makes an entry readable, so each identity gets its own directory, key prefix or bucket,
derived here, in the pod: no configuration can make two engines that differ share entries. Options of the adapters were
read in LMCache 0.5.6 (`lmcache/v1/distributed/l2_adapters`): `fs` and `fs_native` take a directory, `valkey` a key
prefix, `s3` a bucket only, `resp` neither prefix nor database.

Passwords and access keys are no part of it: `credentials` adds them in the process that becomes the cache server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .facts import L2Tier, ProbeReport, ServeSettings
from .identity import unknown_parts
from .layout import write_atomic
from .refusal import Refusal

PREFIX = "qcs-"
MARKER = ".qcs-identity.json"
"""File in a namespace's directory that says whose it is; LMCache reads files named `*.data` only."""
PLACEHOLDER = "{namespace}"
"""In the host of a bucket: replaced by the namespace."""
UNKNOWN_IDENTITY = "IDENTITY"
"""Stands for the identity in a plan, before any pod was probed."""
_GIB = 1 << 30
_EVICTION = {"eviction_policy": "LRU", "trigger_watermark": 0.9, "eviction_ratio": 0.1}


def namespace_of(identity: str) -> str:
    """Name of an identity's namespace: letters, digits and dashes, valid as directory, key prefix and bucket name."""
    return f"{PREFIX}{identity or UNKNOWN_IDENTITY}"


def checked_identity(report: ProbeReport) -> str:
    """The identity that a store may be opened for.

    Raises:
        Refusal: IdentityIncomplete, something that counts could not be found out.

    """
    if report.method == "Predicted":
        return ""
    missing = unknown_parts(report.identity_components)
    if missing or not report.identity:
        raise Refusal(
            "IdentityIncomplete",
            f"a shared store needs to know exactly what runs, but the probe could not find out: "
            f"{', '.join(missing) or 'the identity'}",
            "Remove spec.cache.l2, or let the container see its device (NVIDIA_DRIVER_CAPABILITIES: utility).",
        )
    return report.identity


def adapter(tier: L2Tier, identity: str) -> dict[str, Any]:
    """Specification for `--l2-adapter` of one tier, inside the identity's namespace.

    Raises:
        Refusal: StoreNotSeparable, the store has no way to keep identities apart; SettingsInvalid.

    """
    makers = {"Filesystem": _filesystem, "Valkey": _valkey, "S3": _s3, "Resp": _resp}
    if tier.type not in makers:
        raise Refusal("SettingsInvalid", f"cache.l2[{tier.name}]: unknown type {tier.type!r}")
    return makers[tier.type](tier, identity)


def directory(tier: L2Tier, identity: str) -> str:
    """Path of an identity's entries on a file system."""
    return f"{tier.path.rstrip('/')}/{namespace_of(identity)}"


def _filesystem(tier: L2Tier, identity: str) -> dict[str, Any]:
    where = {"base_path": directory(tier, identity)}
    if not tier.capacity_bytes:
        return {"type": "fs", **where}
    # A capacity alone is only counted; with an eviction block it is kept (LMCache#4725). What other servers have
    # written there is not counted.
    return {"type": "fs_native", **where, "max_capacity_gb": tier.capacity_bytes / _GIB, "eviction": _EVICTION}


def _valkey(tier: L2Tier, identity: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "valkey",
        "startup_nodes": tier.endpoint,
        "key_prefix": namespace_of(identity),
    }
    options = {"cluster_mode": tier.cluster, "tls_enable": tier.tls, "username": tier.username}
    return made | {name: value for name, value in options.items() if value}


def _s3(tier: L2Tier, identity: str) -> dict[str, Any]:
    if PLACEHOLDER not in tier.endpoint:
        _dedicated(tier, identity, "LMCache writes to the root of a bucket, without a prefix")
    made: dict[str, Any] = {
        "type": "s3",
        "s3_endpoint": tier.endpoint.replace(PLACEHOLDER, namespace_of(identity)),
        "s3_region": tier.region,
    }
    if not tier.tls:
        made["disable_tls"] = True
    if tier.capacity_bytes:
        made |= {"max_capacity_gb": tier.capacity_bytes / _GIB, "eviction": _EVICTION}
    return made


def _resp(tier: L2Tier, identity: str) -> dict[str, Any]:
    _dedicated(tier, identity, "LMCache's RESP adapter has neither key prefix nor database")
    host, _, port = tier.endpoint.rpartition(":")
    if not host or not port.isdecimal():
        raise Refusal("SettingsInvalid", f"cache.l2[{tier.name}].endpoint {tier.endpoint!r} is not HOST:PORT")
    made: dict[str, Any] = {"type": "resp", "host": host, "port": int(port)}
    return made | ({"username": tier.username} if tier.username else {})


def _dedicated(tier: L2Tier, identity: str, why: str) -> None:
    """A store that cannot separate is only safe while it holds entries of one identity, which has to be named."""
    if tier.identity and identity in ("", tier.identity):
        # A plan has no identity yet; whether the store is this pod's, the pod will find out.
        return
    owner = tier.identity or "no identity"
    raise Refusal(
        "StoreNotSeparable",
        f"cache.l2[{tier.name}] ({tier.type}): {why}, so engines that differ would read each other's entries; it is "
        f"dedicated to {owner}, and this pod is {identity or UNKNOWN_IDENTITY}",
        "Use a store that can separate (Filesystem, Valkey), or empty this one and dedicate it to the identity in "
        "status.identities.",
    )


def prepare(settings: ServeSettings, report: ProbeReport) -> list[Path]:
    """Make the directories of the file-system tiers and say in each whose it is; returns them.

    Raises:
        Refusal: StoreUnusable, a directory cannot be made or written; IdentityIncomplete.

    """
    made = []
    for tier in settings.cache.l2:
        if tier.type != "Filesystem":
            continue
        folder = Path(directory(tier, checked_identity(report)))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _mark(folder / MARKER, report)
        except OSError as error:
            raise Refusal(
                "StoreUnusable",
                f"cache.l2[{tier.name}]: {folder} cannot be used: {error.strerror or error}",
                "The claim must be writable for spec.pod.securityContext's user or group.",
            ) from error
        made.append(folder)
    return made


def _mark(path: Path, report: ProbeReport) -> None:
    content = {
        "identity": report.identity,
        "summary": report.identity_summary,
        "components": report.identity_components,
    }
    text = json.dumps(content, sort_keys=True, indent=1)
    if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
        write_atomic(path, text)
