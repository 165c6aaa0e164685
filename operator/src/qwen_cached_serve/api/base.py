"""What every model of the resource shares: the base class, the markers its fields carry, and the scalar types.

The models mirror what an API server does with the resource: unknown fields are refused, strings are not numbers, names
are camelCase. Optional means absent, never null. A default that the operator applies itself (`core.resolve`) is a
marker here and not a default of the CustomResourceDefinition, so that a better one can ship later without changing
stored objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

RESTARTS_KEY = "x-qcs-restarts"
DEFAULT_KEY = "x-qcs-default"
"""Keys under which the markers below travel through pydantic's JSON schema to the generator, which removes them."""


class ApiModel(BaseModel):
    """Base of all models under `spec`: frozen, strict, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        strict=True,
        extra="forbid",
        use_attribute_docstrings=True,
    )


class StatusModel(ApiModel):
    """Base of all models under `status`: a field written by another release of the operator is skipped, not refused."""

    model_config = ConfigDict(extra="ignore")


class Marker:
    """A mark on a field that the generator of the CustomResourceDefinition reads."""

    __slots__ = ()

    def entries(self) -> dict[str, Any]:
        """Return what the mark adds to the field's schema."""
        return {}

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the mark to what pydantic generates."""
        return {**handler(schema), **self.entries()}


@dataclass(frozen=True, slots=True)
class Restarts(Marker):
    """Marks a field by what changing it does to the pods; without a mark it takes its parent's, at last `True`."""

    pods: bool
    sentence: str = ""
    """Replaces the usual closing sentence of the description where yes or no is too short."""

    def entries(self) -> dict[str, Any]:
        """Return the mark."""
        return {RESTARTS_KEY: self}


@dataclass(frozen=True, slots=True)
class Default(Marker):
    """Marks the value that the operator uses when the field is absent; shown in the field's description."""

    value: Any
    stored: bool = False
    """`True` puts the default into the CustomResourceDefinition: it is then locked into an object when that is
    created."""

    def entries(self) -> dict[str, Any]:
        """Return the mark."""
        return {DEFAULT_KEY: self}


@dataclass(frozen=True, slots=True)
class ListType(Marker):
    """Marks how server-side apply merges a list; the default for lists is `atomic`."""

    kind: Literal["atomic", "set", "map"]
    keys: tuple[str, ...] = ()

    def entries(self) -> dict[str, Any]:
        """Return the vendor extensions of a structural schema."""
        keys = {"x-kubernetes-list-map-keys": list(self.keys)} if self.keys else {}
        return {"x-kubernetes-list-type": self.kind, **keys}


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY = rf"({SUBDOMAIN}/)?{NAME}"
LABEL_VALUE = rf"({NAME})?"
"""Expressions of Kubernetes' names, without anchors; RE2, Python and Rust read them alike."""

KEEPS_PODS = Restarts(pods=False)
BY_NAME = ListType("map", ("name",))

INT_OR_STRING = "x-kubernetes-int-or-string"

_Int = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]

Size = Annotated[_Int | Annotated[str, Field(max_length=32)], WithJsonSchema({INT_OR_STRING: True, "maxLength": 32})]
"""Bytes as a Kubernetes quantity (`100Gi`); `rules` says which spellings pass, `quantity.to_bytes` reads it."""
Quantity = Annotated[
    _Int | Annotated[str, Field(max_length=32)], WithJsonSchema({INT_OR_STRING: True, "maxLength": 32})
]
"""Any resource quantity of Kubernetes (`500m`, `2`, `16Gi`)."""
IntOrPercent = Annotated[
    _Int | Annotated[str, Field(max_length=5)], WithJsonSchema({INT_OR_STRING: True, "maxLength": 5})
]
"""A number of pods or a percentage of them (`1`, `25%`)."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{SUBDOMAIN}$")]
"""Name of a Kubernetes object (DNS subdomain)."""
LabelName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""Name of a list item that has to be a DNS label, such as a volume."""
QualifiedName = Annotated[str, Field(min_length=1, max_length=317, pattern=rf"^{LABEL_KEY}$")]
"""Key of a label, an annotation or a resource: an optional DNS prefix, a slash, a name."""
DataKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
"""Key inside a Secret or ConfigMap."""
EnvName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
"""Name of an environment variable."""
AbsolutePath = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^:]*$")]
"""Absolute path in a container."""
ImageReference = Annotated[str, Field(max_length=512, pattern=r"^[A-Za-z0-9._:/@-]*$")]
"""Image name with tag or digest; empty means unset."""
Port = Annotated[int, Field(ge=1, le=65535)]
"""TCP port."""
UnixId = Annotated[int, Field(ge=0, le=2147483647)]
"""User or group id."""
LabelValue = Annotated[str, Field(max_length=63, pattern=rf"^{LABEL_VALUE}$")]
"""Value of a label."""
LabelText = Annotated[str, Field(max_length=63)]
"""Value of a label whose form a rule checks, with a clearer message than a pattern gives."""
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Toggle = Literal["Enabled", "Disabled"]
