"""`spec.pod`: what reaches the pods beside the containers' own settings, with the names of core/v1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import (
    BY_NAME,
    ApiModel,
    Default,
    LabelText,
    ListType,
    ObjectName,
    UnixId,
)
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.scheduling import Affinity, Toleration, TopologySpreadConstraint
from qwen_cached_serve.api.v1alpha1.volumes import Annotations, Labels, SecretReference, Volume, VolumeMount

Profile = Literal["RuntimeDefault", "Unconfined", "Localhost"]


class SecurityProfile(ApiModel):
    """A seccomp or AppArmor profile."""

    type: Profile
    """Which kind of profile."""
    localhost_profile: Annotated[str | None, Field(max_length=1024)] = None
    """Name of the profile on the node, with type Localhost."""


class SELinuxOptions(ApiModel):
    """SELinux label of the pod."""

    user: Annotated[str | None, Field(max_length=253)] = None
    """User part of the label."""
    role: Annotated[str | None, Field(max_length=253)] = None
    """Role part of the label."""
    type: Annotated[str | None, Field(max_length=253)] = None
    """Type part of the label."""
    level: Annotated[str | None, Field(max_length=253)] = None
    """Level part of the label."""


class Sysctl(ApiModel):
    """A kernel parameter."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ),
    ]
    """Name of the kernel parameter."""
    value: Annotated[str, Field(max_length=253)]
    """Value of the parameter."""


class PodSecurityContext(ApiModel):
    """Security settings of the pod, as in core/v1; all containers run as the same user."""

    run_as_user: UnixId | None = None
    """User id of all containers."""
    run_as_group: UnixId | None = None
    """Group id of all containers."""
    run_as_non_root: bool | None = None
    """true: the kubelet refuses to run a container as root."""
    fs_group: UnixId | None = None
    """Group that owns the volumes."""
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = None
    """When ownership of a volume is changed; OnRootMismatch is much faster for large model volumes."""
    supplemental_groups: Annotated[tuple[UnixId, ...] | None, Field(max_length=32)] = None
    """Further group ids of the processes."""
    supplemental_groups_policy: Literal["Merge", "Strict"] | None = None
    """Whether groups of the image count."""
    seccomp_profile: SecurityProfile | None = None
    """Seccomp profile of all containers."""
    app_armor_profile: SecurityProfile | None = None
    """AppArmor profile of all containers."""
    se_linux_options: SELinuxOptions | None = None
    """SELinux label of all containers."""
    sysctls: Annotated[tuple[Sysctl, ...] | None, Field(max_length=16), BY_NAME] = None
    """Kernel parameters of the pod."""


class PodSpec(ApiModel):
    """What reaches the pods beside the containers' own settings; nothing is inherited from the resource's metadata."""

    labels: Labels = None
    """Further labels of the pods."""
    annotations: Annotations = None
    """Further annotations of the pods."""
    node_selector: Annotated[dict[str, LabelText] | None, Field(max_length=32)] = None
    """Labels that a node has to have. Pods on different GPU models cannot share cache entries: name the model here."""
    tolerations: Annotated[tuple[Toleration, ...] | None, Field(max_length=32)] = None
    """Taints that the pods tolerate."""
    affinity: Affinity | None = None
    """Where the pods go, and near which other pods."""
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...] | None,
        Field(max_length=16),
        ListType("map", ("topologyKey", "whenUnsatisfiable")),
    ] = None
    """How the pods are spread over zones or nodes."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""
    scheduler_name: ObjectName | None = None
    """Scheduler that places the pods."""
    service_account_name: ObjectName | None = None
    """Existing ServiceAccount to run as; absent means one that the operator makes. No token is mounted either way."""
    image_pull_secrets: Annotated[tuple[SecretReference, ...] | None, Field(max_length=16), BY_NAME] = None
    """Secrets with credentials of the image registry."""
    security_context: PodSecurityContext | None = None
    """Security settings of the pod. Absent means non-root with the runtime's seccomp profile, which passes the Pod
    Security level restricted."""
    volumes: Annotated[tuple[Volume, ...] | None, Field(max_length=32), BY_NAME] = None
    """Further volumes of the pods."""
    volume_mounts: Annotated[tuple[VolumeMount, ...] | None, Field(max_length=32), ListType("map", ("mountPath",))] = (
        None
    )
    """Where the further volumes are mounted, in every container."""
    termination_grace_period_seconds: Annotated[
        int | None, Field(ge=1, le=86400), Default(defaults.TERMINATION_GRACE_PERIOD_SECONDS)
    ] = None
    """Time that running requests have to finish when a pod is stopped."""
