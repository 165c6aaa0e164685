"""Volumes that a user adds to the pod and where they are mounted: a curated part of core/v1, with its names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import (
    SUBDOMAIN,
    AbsolutePath,
    ApiModel,
    DataKey,
    ImageReference,
    LabelName,
    LabelText,
    ObjectName,
    PullPolicy,
    Size,
)

FileMode = Annotated[int | None, Field(ge=0, le=511)]
RelativePath = Annotated[str, Field(min_length=1, max_length=253)]


class KeyToPath(ApiModel):
    """A key and the file it becomes."""

    key: DataKey
    """Key whose value becomes the file."""
    path: RelativePath
    """Path of the file inside the volume."""
    mode: FileMode = None
    """Permission bits of the file, as a decimal number (420 is 0644)."""


Items = Annotated[tuple[KeyToPath, ...] | None, Field(max_length=16)]


class ConfigMapVolume(ApiModel):
    """Files from a ConfigMap."""

    name: ObjectName
    """Name of the ConfigMap."""
    items: Items = None
    """Keys to mount; absent means all."""
    default_mode: FileMode = None
    """Permission bits of the file, as a decimal number (420 is 0644)."""
    optional: bool | None = None
    """true: the pod starts even when the ConfigMap is missing."""


class SecretVolume(ApiModel):
    """Files from a Secret."""

    secret_name: ObjectName
    """Name of the Secret."""
    items: Items = None
    """Keys to mount; absent means all."""
    default_mode: FileMode = None
    """Permission bits of the file, as a decimal number (420 is 0644)."""
    optional: bool | None = None
    """true: the pod starts even when the Secret is missing."""


class EmptyDirSource(ApiModel):
    """Scratch space that lives as long as the pod."""

    medium: Literal["", "Memory"] | None = None
    """Memory keeps it in main memory, which counts against the containers' limits."""
    size_limit: Size | None = None
    """The pod is evicted when it uses more."""


class ClaimSource(ApiModel):
    """An existing PersistentVolumeClaim."""

    claim_name: ObjectName
    """Name of the existing claim."""
    read_only: bool | None = None
    """true: the volume is mounted read-only."""


class HostPathSource(ApiModel):
    """A path of the node; Pod Security levels baseline and restricted refuse it."""

    path: AbsolutePath
    """Absolute path on the node."""
    type: (
        Literal["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"]
        | None
    ) = None
    """What has to be there before the pod starts."""


class NfsSource(ApiModel):
    """An NFS export."""

    server: Annotated[str, Field(min_length=1, max_length=253)]
    """Host name or address."""
    path: AbsolutePath
    """Path that the server exports."""
    read_only: bool | None = None
    """true: the volume is mounted read-only."""


class SecretReference(ApiModel):
    """A Secret in the same namespace."""

    name: ObjectName
    """Name of the Secret."""


class CsiSource(ApiModel):
    """An ephemeral volume of a CSI driver."""

    driver: Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^{SUBDOMAIN}$")]
    """Name of the driver."""
    fs_type: Annotated[str | None, Field(max_length=64)] = None
    """File system type to mount."""
    read_only: bool | None = None
    """true: the volume is mounted read-only."""
    volume_attributes: Annotated[dict[str, Annotated[str, Field(max_length=1024)]] | None, Field(max_length=32)] = None
    """What the driver wants to know."""
    node_publish_secret_ref: SecretReference | None = None
    """Secret that the driver gets."""


class ImageVolume(ApiModel):
    """An OCI image mounted read-only."""

    reference: Annotated[ImageReference, Field(min_length=1)]
    """Image with tag or digest."""
    pull_policy: PullPolicy | None = None
    """When the node pulls it."""


class Volume(ApiModel):
    """One volume: a name and exactly one source."""

    name: LabelName
    """Name that volumeMounts use. The operator's own volumes begin with qcs-."""
    config_map: ConfigMapVolume | None = None
    """Files from a ConfigMap's keys."""
    secret: SecretVolume | None = None
    """Files from a Secret's keys."""
    empty_dir: EmptyDirSource | None = None
    """Scratch space on the node."""
    persistent_volume_claim: ClaimSource | None = None
    """An existing claim in the same namespace."""
    host_path: HostPathSource | None = None
    """A file or folder of the node."""
    nfs: NfsSource | None = None
    """A directory of an NFS server."""
    csi: CsiSource | None = None
    """An ephemeral volume of a CSI driver."""
    image: ImageVolume | None = None
    """An OCI image, mounted read-only."""


class VolumeMount(ApiModel):
    """Where a volume of spec.pod.volumes appears, in the probe, the engine and the cache server alike."""

    name: LabelName
    """Name of the volume."""
    mount_path: AbsolutePath
    """Path in the containers. The operator's own folders are refused."""
    sub_path: RelativePath | None = None
    """Path inside the volume to mount instead of its root."""
    read_only: bool | None = None
    """true: the volume is mounted read-only."""


Labels = Annotated[dict[str, LabelText] | None, Field(max_length=64)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=4096)]] | None, Field(max_length=64)]
