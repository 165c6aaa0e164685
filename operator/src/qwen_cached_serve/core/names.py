"""Names, labels and annotations of the children, valid for every name a resource can have.

A custom resource may be called anything with up to 253 lower-case letters, digits, `-` and `.`; a Service is a DNS
label of at most 63 that begins with a letter, and a pod's name has to leave room for two generated parts (cases
B46-B48). A name that fits is used as it is. Any other is cleaned and gets a hash of the full name, so two different
names never meet.
"""

from __future__ import annotations

import hashlib
import re

GROUP = "qwencache.dev"
MANAGED_BY = "qwen-cached-serve"
OPERATOR_NAME = "qwen-cached-serve-operator"
"""Value of the name label of the operator's own pods, in config/ and in the chart."""

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
COMPONENT_LABEL = "app.kubernetes.io/component"
OWNER_UID_LABEL = f"{GROUP}/owner-uid"
NAME_ANNOTATION = f"{GROUP}/name"
"""Full name of the resource: a label holds 63 characters, a name has up to 253."""
REVISION_ANNOTATION = f"{GROUP}/revision"
"""On the Deployment, which hands it on to its ReplicaSets: the name of the revision that they are made from."""

MAX_BASE_LENGTH = 46
"""63, the length of a host name, less `-` + 10 (ReplicaSet's hash) and `-` + 5 (pod's suffix)."""

_DNS_LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_LABEL_VALUE = re.compile(r"^[a-z0-9A-Z]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$")
# What our own shortened names end in. A resource called like that is renamed too, so that it cannot meet one.
_OURS = re.compile(r"-x[0-9a-f]{7}$")


def base_name(resource: str) -> str:
    """Name of Deployment, Service and ServiceAccount of a resource: a DNS label of at most 46 characters."""
    if len(resource) <= MAX_BASE_LENGTH and _DNS_LABEL.match(resource) and not _OURS.search(resource):
        return resource
    suffix = "-x" + digest(resource)[:7]
    cleaned = re.sub(r"[^a-z0-9]+", "-", resource.lower()).strip("-")
    if not cleaned or not cleaned[0].isalpha():
        cleaned = f"q-{cleaned}".rstrip("-")
    return cleaned[: MAX_BASE_LENGTH - len(suffix)].rstrip("-") + suffix


def config_map_name(resource: str, content_hash: str) -> str:
    """Name of the immutable ConfigMap with the pod's scripts and settings; another content is another object."""
    return f"{base_name(resource)}-pod-{content_hash[:10]}"


def revision_name(resource: str, key_hash: str) -> str:
    """Name of the ControllerRevision for a key; another key is another object."""
    return f"{base_name(resource)}-{key_hash[:10]}"


def instance_label(resource: str) -> str:
    """Label value that names the resource: its own name where that is a valid value."""
    if _LABEL_VALUE.match(resource) and not _OURS.search(resource):
        return resource
    return base_name(resource)


def selector_labels(resource: str) -> dict[str, str]:
    """Labels that select the resource's pods; a Deployment's selector can never change, so neither can these."""
    return {NAME_LABEL: MANAGED_BY, INSTANCE_LABEL: instance_label(resource), COMPONENT_LABEL: "serving"}


def labels(resource: str, owner_uid: str) -> dict[str, str]:
    """Labels of every child: the selector's, and those by which the operator finds and recognises its own."""
    return selector_labels(resource) | {MANAGED_BY_LABEL: MANAGED_BY, OWNER_UID_LABEL: owner_uid}


def selector_text(resource: str) -> str:
    """Render the selector as the scale subresource wants it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector_labels(resource).items()))


def digest(text: str) -> str:
    """Hexadecimal SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
