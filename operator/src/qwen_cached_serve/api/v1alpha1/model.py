"""`spec.model`: which checkpoint is served, and where its files come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import ApiModel, Default, ImageReference, ObjectName, PullPolicy, Size, Toggle
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.environment import SecretKeySelector


class HuggingFaceSource(ApiModel):
    """A repository on the Hugging Face Hub or on a mirror of it."""

    revision: Annotated[str | None, Field(min_length=1, max_length=256), Default(defaults.HUB_REVISION)] = None
    """Branch, tag or commit. A branch or tag is resolved to its commit when a pod starts; name the commit to be sure
    that all pods serve the same weights."""
    token_secret_key_ref: SecretKeySelector | None = None
    """Key of a Secret in the same namespace that holds the access token of a gated or private model. The operator never
    reads it; only the pod does."""
    endpoint: Annotated[str | None, Field(max_length=2048, pattern=r"^https?://[!-~]+$")] = None
    """Base URL of a mirror, instead of the public hub."""
    offline: Toggle | None = None
    """Enabled: never contact the hub, use only what the download volume already holds. Absent means Disabled."""


class ModelClaimSource(ApiModel):
    """A PersistentVolumeClaim that already holds the checkpoint; mounted read-only."""

    claim_name: ObjectName
    """Name of the claim, in the same namespace."""


class ModelImageSource(ApiModel):
    """An OCI image or artifact that holds the checkpoint, mounted as a read-only image volume."""

    reference: Annotated[ImageReference, Field(min_length=1)]
    """Image with tag or digest; name the digest to be sure that all pods serve the same weights."""
    pull_policy: Annotated[PullPolicy | None, Default(defaults.IMAGE_PULL_POLICY)] = None
    """When the node pulls it."""


class ModelSource(ApiModel):
    """Where the checkpoint comes from: `type` and the block of that name."""

    type: Annotated[Literal["HuggingFace", "PersistentVolumeClaim", "Image"] | None, Default(defaults.MODEL_SOURCE)] = (
        None
    )
    """HuggingFace downloads the files when a pod starts, PersistentVolumeClaim and Image mount them."""
    hugging_face: HuggingFaceSource | None = None
    """Options of type HuggingFace; may be left out."""
    persistent_volume_claim: ModelClaimSource | None = None
    """The volume of type PersistentVolumeClaim; model.name is the path inside it."""
    image: ModelImageSource | None = None
    """The image of type Image; model.name is the path inside it. Needs image volumes in the cluster (feature gate
    ImageVolume) and in its container runtime."""


class EmptyDirVolume(ApiModel):
    """Space on the node's disk that lives as long as the pod."""

    size_limit: Size | None = None
    """The pod is evicted when it uses more; absent means no limit."""


class ClaimVolume(ApiModel):
    """A claim that outlives the pods. With more than one replica it has to be ReadWriteMany."""

    claim_name: ObjectName
    """Name of the claim, in the same namespace."""


class DownloadVolume(ApiModel):
    """Where downloads and compile caches go: `type` and the block of that name."""

    type: Annotated[Literal["EmptyDir", "PersistentVolumeClaim"] | None, Default(defaults.DOWNLOAD_VOLUME)] = None
    """EmptyDir downloads the checkpoint again for every new pod (55 GB for a 27B model); PersistentVolumeClaim keeps
    it."""
    empty_dir: EmptyDirVolume | None = None
    """Options of type EmptyDir; may be left out."""
    persistent_volume_claim: ClaimVolume | None = None
    """The claim of type PersistentVolumeClaim."""


class ModelSpec(ApiModel):
    """Which checkpoint is served."""

    name: Annotated[str, Field(min_length=1, max_length=512)]
    """Hub id such as Qwen/Qwen3.6-27B; with source type PersistentVolumeClaim or Image the path inside that volume
    ("." for its root)."""
    source: ModelSource | None = None
    """Where the files come from; absent means the Hugging Face Hub, revision main."""
    download_volume: DownloadVolume | None = None
    """Where downloads and compile caches go; absent means an emptyDir."""
    served_names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-,.-~][!-~]*$")], ...] | None,
        Field(min_length=1, max_length=16),
    ] = None
    """Names that clients may put into the `model` field of a request; the first one labels the engine's metrics. Absent
    means model.name."""
    max_model_len: Annotated[int | None, Field(ge=1, le=16777216)] = None
    """Longest prompt plus answer, in tokens. Absent means the model's own limit, which for Qwen3.6 asks for much GPU
    memory. A prompt shorter than one block (N tokens) is never cached."""
    modalities: Annotated[Literal["TextOnly", "All"] | None, Default(defaults.MODALITIES)] = None
    """TextOnly switches the vision tower off and frees its memory. All keeps it, but images together with the cache are
    not validated."""
