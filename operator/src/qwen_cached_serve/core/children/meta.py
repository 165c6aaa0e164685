"""Metadata of the children. Nothing is copied from the resource's own labels or annotations (B51)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.api.v1alpha1 import API_VERSION, KIND
from qwen_cached_serve.core import names
from qwen_cached_serve.core.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Owner:
    """The resource as its children refer to it; `blockOwnerDeletion` stays unset, it needs a further permission."""

    name: str
    uid: str
    api_version: str = API_VERSION
    kind: str = KIND


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata of one child."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner: Owner | None
    """None when the resource has no uid yet (`qcs render` of a file)."""


def meta_of(
    resolved: Resolved,
    name: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Meta:
    """Return a child's metadata; without a name it has the resource's own base name.

    `labels` and `annotations` are further ones that the spec names for this child.
    """
    return Meta(
        name=name or names.base_name(resolved.name),
        namespace=resolved.namespace,
        labels={**(labels or {}), **names.labels(resolved.name, resolved.uid)},
        annotations={**(annotations or {}), names.NAME_ANNOTATION: resolved.name},
        owner=Owner(resolved.name, resolved.uid) if resolved.uid else None,
    )
