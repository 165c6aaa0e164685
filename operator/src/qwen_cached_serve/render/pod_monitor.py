"""The part of monitoring.coreos.com/v1 PodMonitor that is rendered here, as strict as the models of the Kubernetes API.

The kubernetes package has no models of other people's kinds; field names are those of the Prometheus operator's
definition (v0.93), against which the cluster tests apply the result.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)


class _OwnerReference(_Strict):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool


class _Metadata(_Strict):
    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    owner_references: list[_OwnerReference] = []


class _Selector(_Strict):
    match_labels: dict[str, str]


class _Relabeling(_Strict):
    action: str
    source_labels: list[str] = []
    target_label: str
    replacement: str = ""


class _Endpoint(_Strict):
    port: str
    path: str
    interval: str = ""
    relabelings: list[_Relabeling]


class _Spec(_Strict):
    selector: _Selector
    pod_metrics_endpoints: list[_Endpoint]


class PodMonitor(_Strict):
    """A PodMonitor."""

    api_version: str
    kind: str
    metadata: _Metadata
    spec: _Spec
