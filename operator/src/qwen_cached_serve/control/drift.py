"""Does a live object still say what we applied? Then nothing is sent: no write and no request (DESIGN D15, case B53).

Comparing whole objects never works, because the API server fills in defaults and other actors own fields of their
own. So only what we *state* is compared: every stated field must be there with the stated value; whatever else the
object has is somebody else's. Fields that we no longer state are not seen here: the hash of the whole manifest, an
annotation that is itself part of it, differs then.

Maps and lists that the API merges as a whole (`_ATOMIC_MAPS`, lists without a key) are ours as a whole: one more label
in a selector is a difference.

Four spellings of the API count as equal: an empty value and an absent one (`omitempty`), quantities of the same
amount (`1024Mi`, `1Gi`), `1` and `1.0`, and list items in another order where the API merges lists by a key.
"""

from __future__ import annotations

import decimal
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from qwen_cached_serve.kube.port import Manifest

HASH_ANNOTATION = "qwencache.dev/manifest-hash"
CONTENT_KEY = "contentHash"
"""Stands for `data` in a condensed ConfigMap."""

_QUANTITY = re.compile(r"^([+-]?[0-9.]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?$")
_QUANTITY_PARENTS = frozenset({"limits", "requests", "capacity"})
_QUANTITY_FIELDS = frozenset({"sizeLimit", "divisor"})
_SUFFIX = {
    "m": decimal.Decimal("0.001"),
    **{unit: decimal.Decimal(1000) ** power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: decimal.Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
# The keys by which the API merges lists (x-kubernetes-list-map-keys of apps/v1 and core/v1), by the list's field name.
# A list that is not here is atomic: it is ours as a whole.
_LIST_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
    "hostAliases": ("ip",),
}
_ATOMIC_MAPS = frozenset({"selector", "podSelector", "namespaceSelector"})
_CONTAINER_PORT_KEYS = ("containerPort", "protocol")
_SERVICE_PORT_KEYS = ("port", "protocol")


def manifest_hash(manifest: Manifest) -> str:
    """Return the hash of a manifest without the annotation that carries it."""
    return hashlib.sha256(json.dumps(unstamped(manifest), sort_keys=True).encode()).hexdigest()[:16]


def stamped(manifest: Manifest) -> Manifest:
    """Return the manifest with its hash among the annotations."""
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), HASH_ANNOTATION: manifest_hash(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def unstamped(manifest: Manifest) -> Manifest:
    """Return the manifest without its hash."""
    metadata = manifest["metadata"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != HASH_ANNOTATION}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def condensed(manifest: Manifest) -> Manifest:
    """Return a ConfigMap with the hash of its data instead of the data: hundreds of them are kept in memory."""
    kept = {key: value for key, value in manifest.items() if key not in ("data", "binaryData")}
    content = {"data": manifest.get("data") or {}, "binaryData": manifest.get("binaryData") or {}}
    kept[CONTENT_KEY] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return kept


def differences(desired: Manifest, live: Manifest, limit: int = 5) -> list[str]:
    """Return the paths (at most `limit`) of stated fields that the live object has lost or that differ."""
    found: list[str] = []
    for path in _walk(desired, live, ""):
        found.append(path)
        if len(found) == limit:
            break
    return found


def _walk(desired: Any, live: Any, path: str) -> Iterator[str]:
    if desired is None:
        return
    if _empty(desired):
        if not _empty(live) and (not isinstance(desired, dict | list) or path.rsplit(".", 1)[-1] in _ATOMIC_MAPS):
            yield path
    elif isinstance(desired, dict):
        if not isinstance(live, dict):
            yield path
            return
        for key, value in desired.items():
            yield from _walk(value, live.get(key), f"{path}.{key}" if path else key)
        if path.rsplit(".", 1)[-1] in _ATOMIC_MAPS:
            yield from (f"{path}.{line}" for line in _added(desired, live, ""))
    elif isinstance(desired, list):
        yield from _walk_list(desired, live, path)
    elif not _same(desired, live, path):
        yield path


def _added(desired: dict[str, Any], live: dict[str, Any], path: str) -> Iterator[str]:
    """Yield what a live map has beside what is desired."""
    for key, value in live.items():
        where = f"{path}.{key}" if path else key
        if key not in desired:
            if not _empty(value):
                yield where
        elif isinstance(value, dict) and isinstance(desired[key], dict):
            yield from _added(desired[key], value, where)


def _walk_list(desired: list[Any], live: Any, path: str) -> Iterator[str]:
    if not isinstance(live, list):
        yield path
        return
    keys = _keys_of(path, desired)
    if not keys:
        if len(desired) != len(live):
            yield path
            return
        for index, (wanted, found) in enumerate(zip(desired, live, strict=True)):
            yield from _walk(wanted, found, f"{path}[{index}]")
        return
    by_key = {_key(item, keys): item for item in live if isinstance(item, dict)}
    for item in desired:
        key = _key(item, keys)
        where = f"{path}[{','.join(str(part) for part in key)}]"
        if key not in by_key:
            yield where
        else:
            yield from _walk(item, by_key[key], where)


def _keys_of(path: str, items: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(item, dict) for item in items):
        return ()
    field = path.rsplit(".", 1)[-1]
    if field == "ports" and "ingress[" not in path:  # a NetworkPolicy's are atomic
        return _CONTAINER_PORT_KEYS if "containerPort" in items[0] else _SERVICE_PORT_KEYS
    return _LIST_KEYS.get(field, ())


def _key(item: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key, "TCP" if key == "protocol" else None) for key in keys)


def _empty(value: Any) -> bool:
    # 0 and False are values of pointer fields, too (maxSurge: 0), but an API object never distinguishes an omitted
    # non-pointer zero from an absent field, and a pointer's zero is kept: `_same` sees it on the live side.
    return value is None or value == "" or value == {} or value == []


def _same(desired: Any, live: Any, path: str) -> bool:
    if desired == live and isinstance(desired, bool) == isinstance(live, bool):
        return True
    if desired in (0, False) and live is None:
        return True
    parts = path.rsplit(".", 2)
    if parts[-1] in _QUANTITY_FIELDS or any(part in _QUANTITY_PARENTS for part in path.split(".")[-4:]):
        return _amount(desired) is not None and _amount(desired) == _amount(live)
    return False


def _amount(value: Any) -> decimal.Decimal | None:
    match = _QUANTITY.match(str(value))
    if not match:
        return None
    suffix = match[2] or ""
    try:
        number = decimal.Decimal(match[1])
        return number * _SUFFIX[suffix] if suffix in _SUFFIX else number * decimal.Decimal(f"1{suffix}")
    except decimal.InvalidOperation:
        return None
