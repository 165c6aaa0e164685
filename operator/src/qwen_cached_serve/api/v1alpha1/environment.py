"""Parts of core/v1 that containers take: environment variables and compute resources, with Kubernetes' own names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import LABEL_KEY, ApiModel, DataKey, EnvName, ObjectName, Quantity

_FIELD_PATH = (
    rf"^(metadata\.(name|namespace|uid|labels\['{LABEL_KEY}'\]|annotations\['{LABEL_KEY}'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?))$"
)
OptionalReference = Annotated[bool | None, Field()]


class SecretKeySelector(ApiModel):
    """One key of a Secret in the same namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: DataKey
    """Key inside the Secret."""
    optional: OptionalReference = None
    """true: the pod starts even when the Secret or the key is missing."""


class ConfigMapKeySelector(ApiModel):
    """One key of a ConfigMap in the same namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: DataKey
    """Key inside the ConfigMap."""
    optional: OptionalReference = None
    """true: the pod starts even when the ConfigMap or the key is missing."""


class ObjectFieldSelector(ApiModel):
    """A field of the pod itself."""

    field_path: Annotated[str, Field(min_length=1, max_length=384, pattern=_FIELD_PATH)]
    """Path such as metadata.name, spec.nodeName, status.hostIP or status.podIP."""
    api_version: Literal["v1"] | None = None
    """Version of the schema that the path is written in."""


class EnvVarSource(ApiModel):
    """Where a variable's value comes from: exactly one of the blocks."""

    secret_key_ref: SecretKeySelector | None = None
    """Value from a Secret. Rotating the Secret restarts nothing by itself."""
    config_map_key_ref: ConfigMapKeySelector | None = None
    """Value from a ConfigMap."""
    field_ref: ObjectFieldSelector | None = None
    """Value from a field of the pod."""


class EnvVar(ApiModel):
    """One environment variable: `value` or `valueFrom`."""

    name: EnvName
    """Name of the variable. Variables that the operator sets itself are refused."""
    value: Annotated[str | None, Field(max_length=4096)] = None
    """Value, written out here."""
    value_from: EnvVarSource | None = None
    """Value taken from somewhere else; excludes `value`."""


class ResourceRequirements(ApiModel):
    """Compute resources of one container, as in core/v1."""

    requests: Annotated[dict[str, Quantity] | None, Field(max_length=16)] = None
    """What the scheduler reserves."""
    limits: Annotated[dict[str, Quantity] | None, Field(max_length=16)] = None
    """What the container may use at most."""


EnvVars = Annotated[tuple[EnvVar, ...] | None, Field(max_length=100)]
ExtraArgs = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...] | None, Field(max_length=64)]
UncheckedArgs = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...] | None, Field(max_length=100)
]
