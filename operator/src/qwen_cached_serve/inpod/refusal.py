"""The one exception that carries a coded refusal: what is wrong, in words for people, and the remedy.

The code becomes the reason of a condition, so it is CamelCase and stable; message and hint are sentences.
"""

from __future__ import annotations

CODES = frozenset(
    {
        "ArchitectureNotSupported",
        "BadEngineArgs",
        "BlockSizeNotFound",
        "CacheServerFailed",
        "CheckpointMissing",
        "CheckpointUnreadable",
        "ChunkLargerThanL1",
        "ConstructFailed",
        "DeviceChanged",
        "DeviceMissing",
        "DeviceNotExclusive",
        "DryStartFailed",
        "FixedTokensOutOfRange",
        "IdentityIncomplete",
        "ImageTooOld",
        "Internal",
        "MaxNumSeqsOutOfRange",
        "ModelAccessDenied",
        "ModelNameNotCacheable",
        "ModelNotAvailableOffline",
        "OutOfMemory",
        "PagePadded",
        "PrefixCachingDisabled",
        "ProbeMissing",
        "ProgramMissing",
        "SettingsInvalid",
        "StartupTimeout",
        "StoreNotSeparable",
        "StoreUnusable",
        "Terminated",
        "Timeout",
        "UnsupportedPair",
    }
)


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a defect
    """The pod cannot serve, for a reason that has a code, a sentence and a remedy."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        if code not in CODES:
            raise ValueError(f"unknown refusal code {code!r}")
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.hint = hint
