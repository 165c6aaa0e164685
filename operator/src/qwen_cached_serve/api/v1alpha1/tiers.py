"""`spec.cache.l2`: stores behind the cache server's memory, which outlive pods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwen_cached_serve.api.base import ApiModel, Default, LabelName, ObjectName, Size, Toggle
from qwen_cached_serve.api.v1alpha1 import defaults
from qwen_cached_serve.api.v1alpha1.environment import SecretKeySelector

_HOST = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?"
Address = Annotated[str, Field(min_length=3, max_length=260, pattern=rf"^{_HOST}:[0-9]{{1,5}}$")]
"""Host and port."""
BucketHost = Annotated[
    str, Field(min_length=1, max_length=259, pattern=r"^[A-Za-z0-9{][-A-Za-z0-9_.{}]*(:[0-9]{1,5})?$")
]
"""Name of a bucket's host, with a placeholder perhaps, and a port."""
Identity = Annotated[str, Field(max_length=46, pattern=r"^v[0-9]{1,4}-[0-9a-f]{40}$")]
"""A compatibility identity, as status.identities shows it."""
UserName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[!-~]+$")]
"""Name of a user: printable, without spaces."""


class L2Filesystem(ApiModel):
    """A directory on a volume, with one below it for each compatibility identity. The operator deletes none."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim, in the same namespace."""
    path: Annotated[str | None, Field(max_length=1024)] = None
    """Directory inside the volume; its root when not given."""
    capacity: Size | None = None
    """Most that what one cache server writes during its life may take; the oldest entries go first. Without it they
    stay until somebody deletes them."""


class L2Valkey(ApiModel):
    """A Valkey or Redis server, where each compatibility identity has a key prefix of its own. Needs the Python package
    valkey-glide-sync in the image, which LMCache does not bring along. Set maxmemory and an eviction policy on the
    server: nothing else limits what entries take.
    """

    endpoint: Address
    """Host and port, as in valkey.example:6379; of a cluster any of its nodes."""
    topology: Annotated[Literal["Standalone", "Cluster"] | None, Default(defaults.VALKEY_TOPOLOGY)] = None
    """Cluster: the other nodes are asked for and keys are spread over them."""
    tls: Annotated[Toggle | None, Default(defaults.VALKEY_TLS)] = None
    """Encrypt the connection; the server's certificate has to be one that the image trusts."""
    username: UserName | None = None
    """User of the server's access control list; its default user when not given."""
    password_secret_key_ref: SecretKeySelector | None = None
    """Key of the Secret that holds the password."""


class L2S3Credentials(ApiModel):
    """An access key, in Secrets of the same namespace."""

    access_key_id_secret_key_ref: SecretKeySelector
    """Key of the Secret that holds the id of the access key."""
    secret_access_key_secret_key_ref: SecretKeySelector
    """Key of the Secret that holds the access key itself."""


class L2S3(ApiModel):
    """Buckets of an S3 service, one for each compatibility identity: LMCache writes to the root of a bucket, and makes
    none.
    """

    endpoint: BucketHost
    """Host of the bucket, as in {namespace}.s3.eu-central-1.amazonaws.com: {namespace} becomes the identity's
    namespace, and a bucket of that name has to be there. Without {namespace} set dedicatedTo."""
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    """Region that requests are signed for."""
    tls: Annotated[Toggle | None, Default(defaults.S3_TLS)] = None
    """Encrypt the connection; Disabled is for services inside the cluster."""
    dedicated_to: Identity | None = None
    """The one identity whose entries the bucket holds, where the endpoint has no {namespace}. A pod with another one
    does not start."""
    credentials: L2S3Credentials | None = None
    """Access key. Without it the AWS library's own chain is asked (service account, instance), which needs the Python
    package boto3 in the image."""
    capacity: Size | None = None
    """Most that what one cache server writes during its life may take; the oldest entries go first. Without it they
    stay until somebody deletes them."""


class L2Resp(ApiModel):
    """A Redis or Valkey server of one compatibility identity's own: this adapter needs no further package, and has
    neither key prefix nor database. Set maxmemory and an eviction policy on the server.
    """

    endpoint: Address
    """Host and port, as in redis.example:6379."""
    dedicated_to: Identity
    """The one identity whose entries the server holds; nobody else may use it. A pod with another one does not start.
    status.identities shows what a resource's pods have."""
    username: UserName | None = None
    """User of the server's access control list; its default user when not given."""
    password_secret_key_ref: SecretKeySelector | None = None
    """Key of the Secret that holds the password."""


class L2Tier(ApiModel):
    """One tier behind main memory: `type` and the block of that name."""

    name: LabelName
    """Name of the tier, for status and messages."""
    type: Literal["Filesystem", "Valkey", "S3", "Resp"]
    """Kind of store behind this tier."""
    filesystem: L2Filesystem | None = None
    """The directory of type Filesystem."""
    valkey: L2Valkey | None = None
    """The server of type Valkey."""
    s3: L2S3 | None = None
    """The bucket of type S3."""
    resp: L2Resp | None = None
    """The server of type Resp."""
