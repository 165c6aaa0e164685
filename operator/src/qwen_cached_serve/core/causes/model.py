"""The checkpoint: the hub, the volume it lies on, and what is in it."""

from __future__ import annotations

from .rule import FailureClass, Tier, rule

_AREA = "Model"
_HUB = "spec.model.source.huggingFace"

CLASSES = (
    FailureClass(
        "ModelAccessDenied",
        _AREA,
        "The model hub refuses access to the model.",
        f"{_HUB}.tokenSecretKeyRef",
        "Accept the model's terms with the account of the token, and check the token (no trailing newline).",
    ),
    FailureClass(
        "ModelNotFound",
        _AREA,
        "The model or its revision does not exist; the hub says the same of a private model without a token.",
        "spec.model.name",
        f"Correct it or {_HUB}.revision; for a private model set tokenSecretKeyRef.",
    ),
    FailureClass(
        "ModelHubRateLimited",
        _AREA,
        "The model hub answers that there were too many requests.",
        f"{_HUB}.tokenSecretKeyRef",
        "Wait; give a token (more requests are allowed then), keep the download (spec.model.downloadVolume) or use a "
        "mirror (endpoint).",
        heals=True,
    ),
    FailureClass(
        "ModelHubUnreachable",
        _AREA,
        "The model hub cannot be reached from the pod, or fails.",
        f"{_HUB}.endpoint",
        "Check DNS and egress, set the field to a mirror, or take the model from a volume.",
        heals=True,
    ),
    FailureClass(
        "HubCertificateUntrusted",
        _AREA,
        "The pod does not trust the certificate of the hub (a proxy that inspects traffic has its own).",
        "spec.engine.env",
        "Point SSL_CERT_FILE and REQUESTS_CA_BUNDLE to the right bundle.",
    ),
    FailureClass(
        "ModelNotAvailableOffline",
        _AREA,
        "The model's files are not there and downloading is switched off.",
        "spec.model.name",
        f"Correct it (for a volume: the path inside it), fill spec.model.downloadVolume, or allow the hub "
        f"({_HUB}.offline).",
        heals=True,
    ),
    FailureClass(
        "ReadOnlyModelVolume",
        _AREA,
        "Something wanted to write to the read-only model.",
        "spec.model.source",
        "Complete the model on the volume (all files, no pending downloads); it is mounted read-only.",
    ),
    FailureClass(
        "ModelFilesUnreadable",
        _AREA,
        "The pod's user may not read files of the model.",
        "spec.pod.securityContext",
        "Make the files readable for user 2000 or group 0, or set fsGroup.",
    ),
    FailureClass(
        "CheckpointDamaged",
        _AREA,
        "The checkpoint is incomplete or damaged.",
        "spec.model.source",
        "Download or copy it again; compare the sizes of the shards with the index.",
    ),
    FailureClass(
        "ArchitectureNotSupported",
        _AREA,
        "This operator or the engine does not know the model's architecture.",
        "spec.model.name",
        "This operator serves Qwen3.5, 3.6 and 3.8; correct it, or use a newer spec.engine.image.",
    ),
    FailureClass(
        "RemoteCodeRefused",
        _AREA,
        "The checkpoint wants to run code of its own, which is not allowed.",
        "spec.model.name",
        "Use a checkpoint in the format of transformers. --trust-remote-code would run code that nobody here has read.",
    ),
)

RULES = (
    rule("ModelNotFound", r"RepositoryNotFoundError|RevisionNotFoundError|(?:Repository|Revision) Not Found for url"),
    rule(
        "ModelAccessDenied",
        r"(?:GatedRepoError|401 Client Error|403 Client Error|403 Forbidden|You are trying to access a gated repo|"
        r"Access to model \S+ is restricted|Invalid credentials in Authorization header|"
        r"Cannot access gated repo|Invalid user token)",
    ),
    rule(
        "ModelHubRateLimited",
        r"(?:429 Client Error|429 Too Many Requests|Too Many Requests for url|We had to rate limit)",
    ),
    rule("HubCertificateUntrusted", r"CERTIFICATE_VERIFY_FAILED"),
    rule(
        "ModelNotAvailableOffline",
        r"(?:OfflineModeIsEnabled|offline mode is enabled|outgoing traffic has been disabled)",
    ),
    rule("ReadOnlyModelVolume", r"Read-only file system: '(?P<path>[^'\n]{1,200})", "A write to {path} was refused."),
    rule(
        "ModelFilesUnreadable",
        r"\[Errno 13\] Permission denied: '(?P<path>(?:/model|/var/cache/qcs)[^'\n]{0,200})",
        "The pod's user may not use {path}.",
    ),
    rule(
        "ModelHubUnreachable",
        # As Python words it; other clients of other servers (LMCache's of a second tier) have words of their own.
        r"(?:\[Errno -\d\] (?:Temporary failure in name resolution|Name or service not known|"
        r"No address associated with hostname)|Failed to establish a new connection|Max retries exceeded with url|"
        r"50[0234] Server Error)",
    ),
    # Their texts speak of the network; the cause may be anything that the hub said before.
    rule("ModelNotAvailableOffline", r"LocalEntryNotFoundError", tier=Tier.SYMPTOM),
    rule("ModelHubUnreachable", r"We couldn't connect to '[^'\n]{1,100}' to load", tier=Tier.SYMPTOM),
    rule(
        "ModelNotFound",
        r"(?:404 Client Error|Invalid repository ID or local directory|"
        r"is not a local folder and is not a valid model identifier|HFValidationError|Repo id must)",
    ),
    rule(
        "CheckpointDamaged",
        r"Cannot find any model weights with `(?P<path>[^`\n]{1,200})`",
        "There are no weights in {path}.",
    ),
    rule(
        "CheckpointDamaged",
        r"Weight files referenced in index but missing: (?P<files>[^\n]{1,200})",
        "Files that the index names are missing: {files}",
    ),
    rule("CheckpointDamaged", r"Following weights were not initialized from checkpoint"),
    rule("CheckpointDamaged", r"(?:SafetensorError: [^\n]{0,160}|Error while deserializing header)"),
    rule(
        "ArchitectureNotSupported",
        r"Model architectures (?P<architectures>\[[^\]\n]{1,200}\]) "
        r"(?:are not supported for now|failed to be inspected)",
        "The engine in this image cannot serve {architectures}.",
    ),
    rule(
        "ArchitectureNotSupported",
        r"model type `(?P<type>[^`\n]{1,80})` but Transformers does not recognize this architecture",
        "The image's transformers does not know model type {type}.",
        remedy="Use a newer image, or correct spec.model.name.",
        field="spec.engine.image",
    ),
    rule(
        "RemoteCodeRefused",
        r"(?:contains custom code which must be executed|pass the argument `?trust_remote_code=True)",
    ),
)
