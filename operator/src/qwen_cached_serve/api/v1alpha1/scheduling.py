"""Parts of core/v1 that place a pod: tolerations, affinity and topology spread, with Kubernetes' own names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import ApiModel, LabelName, LabelText, LabelValue, ObjectName, QualifiedName

Values = Annotated[tuple[LabelValue, ...] | None, Field(max_length=64)]
Keys = Annotated[tuple[QualifiedName, ...] | None, Field(max_length=16)]
NodePolicy = Literal["Honor", "Ignore"]


class Toleration(ApiModel):
    """Lets the pods onto nodes with a matching taint."""

    key: QualifiedName | None = None
    """Taint key; absent together with operator Exists matches every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """How key and value are compared; absent means Equal."""
    value: LabelValue | None = None
    """Taint value, with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; absent matches all of them."""
    toleration_seconds: Annotated[int | None, Field(ge=0, le=2147483647)] = None
    """How long a NoExecute taint is tolerated; absent means for ever."""


class NodeSelectorRequirement(ApiModel):
    """One requirement on a label of a node."""

    key: QualifiedName
    """Key of the node's label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the label is compared with the values."""
    values: Values = None
    """Values for In and NotIn, one integer for Gt and Lt, none for Exists and DoesNotExist."""


class NodeFieldRequirement(ApiModel):
    """One requirement on a field of a node."""

    key: Literal["metadata.name"]
    """Field of the node; there is only its name."""
    operator: Literal["In", "NotIn"]
    """How the name is compared with the value."""
    values: Annotated[tuple[ObjectName, ...], Field(min_length=1, max_length=1)]
    """The one name to compare with."""


class LabelSelectorRequirement(ApiModel):
    """One requirement on a label."""

    key: QualifiedName
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared with the values."""
    values: Values = None
    """Values for In and NotIn, none for Exists and DoesNotExist."""


class NodeSelectorTerm(ApiModel):
    """Requirements that hold together."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...] | None, Field(max_length=32)] = None
    """Requirements on the node's labels."""
    match_fields: Annotated[tuple[NodeFieldRequirement, ...] | None, Field(max_length=32)] = None
    """Requirements on the node's fields."""


class NodeSelector(ApiModel):
    """Terms of which one has to hold."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=16)]
    """The terms, of which one has to hold."""


class PreferredSchedulingTerm(ApiModel):
    """A preference for nodes."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """Weight against other preferences."""
    preference: NodeSelectorTerm
    """The nodes that are preferred."""


class NodeAffinity(ApiModel):
    """Which nodes the pods go to."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes that the pods may go to."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...] | None, Field(max_length=16)
    ] = None
    """Nodes that the pods should go to."""


class LabelSelector(ApiModel):
    """Selects pods or namespaces by labels."""

    match_labels: Annotated[dict[str, LabelText] | None, Field(max_length=32)] = None
    """Labels that have to be equal."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...] | None, Field(max_length=32)] = None
    """Requirements that have to hold."""


class PodAffinityTerm(ApiModel):
    """Pods to be near to, or away from."""

    topology_key: QualifiedName
    """Node label that says what near means."""
    label_selector: LabelSelector | None = None
    """The other pods, by their labels."""
    namespaces: Annotated[tuple[LabelName, ...] | None, Field(max_length=32)] = None
    """Namespaces of the other pods; absent means this one."""
    namespace_selector: LabelSelector | None = None
    """Namespaces of the other pods, by label."""
    match_label_keys: Keys = None
    """Keys whose values are taken from the pod itself."""
    mismatch_label_keys: Keys = None
    """Keys whose values have to differ from the pod's own."""


class WeightedPodAffinityTerm(ApiModel):
    """A preference for being near to, or away from, pods."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """Weight against other preferences."""
    pod_affinity_term: PodAffinityTerm
    """The other pods, by their labels."""


class PodAffinity(ApiModel):
    """Rules about other pods."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...] | None, Field(max_length=16)
    ] = None
    """Rules that have to hold for a node."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...] | None, Field(max_length=16)
    ] = None
    """Rules that should hold for a node."""


class Affinity(ApiModel):
    """Scheduling constraints, as in core/v1."""

    node_affinity: NodeAffinity | None = None
    """Which nodes the pods go to."""
    pod_affinity: PodAffinity | None = None
    """Which pods they go near to."""
    pod_anti_affinity: PodAffinity | None = None
    """Which pods they stay away from."""


class TopologySpreadConstraint(ApiModel):
    """How the pods are spread."""

    max_skew: Annotated[int, Field(ge=1, le=2147483647)]
    """Largest difference between two domains."""
    topology_key: QualifiedName
    """Node label that names the domain."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """What happens when the spread cannot be kept."""
    label_selector: LabelSelector | None = None
    """Pods that are counted; absent means the pods of this resource."""
    match_label_keys: Keys = None
    """Keys whose values are taken from the pod itself."""
    min_domains: Annotated[int | None, Field(ge=1, le=2147483647)] = None
    """Fewest domains that there should be."""
    node_affinity_policy: NodePolicy | None = None
    """Whether nodes that the affinity excludes are counted."""
    node_taints_policy: NodePolicy | None = None
    """Whether nodes with taints that are not tolerated are counted."""
