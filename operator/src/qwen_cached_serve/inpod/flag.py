"""One derived flag, and the token figure that both programs share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .facts import ServeSettings
from .profiles import LMCacheProfile
from .refusal import Refusal

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a command line. `name` is empty for positional and verbatim arguments."""

    name: str
    values: tuple[str, ...]
    reason: str
    source: str
    """The spec field, `probe`, `profile` or `rule` (a fact of the programs)."""

    @property
    def value(self) -> str | None:
        """The value as people read it; None for a switch."""
        return " ".join(self.values) if self.values else None

    def argv(self) -> list[str]:
        """The flag as arguments; a value that begins with a dash is joined by `=` so that no parser takes it for a
        flag.
        """
        if self.name and len(self.values) == 1 and self.values[0].startswith("-"):
            return [f"{self.name}={self.values[0]}"]
        return [self.name, *self.values] if self.name else list(self.values)


def tokens_per_step(settings: ServeSettings, block_size: int, lmcache: LMCacheProfile | None = None) -> int | None:
    """Value of `--max-num-batched-tokens` for N = `block_size`; None leaves it to the engine.

    Without the cache nothing ties the figure to N, so only a `Fixed` value is passed on. With it the figure lies in
    [N, 2N), except that a `Fixed` one may be larger where LMCache's release allows it. Without a profile (the release
    is not known) only the rule of every release is applied.

    Raises:
        Refusal: FixedTokensOutOfRange, a `Fixed` value that LMCache would refuse.

    """
    policy = settings.engine.tokens_per_step
    if policy.policy == "Fixed":
        if policy.value is None:
            raise Refusal(
                "SettingsInvalid",
                "maxNumBatchedTokens: policy Fixed needs a value",
                "Set spec.engine.vllm.maxNumBatchedTokens.value.",
            )
        if settings.cache.enabled:
            _check_fixed(policy.value, block_size, lmcache)
        return policy.value
    if not settings.cache.enabled:
        return None
    if policy.policy == "OneBlock":
        return block_size
    if policy.policy == "TwoBlocksMinusOne":
        return 2 * block_size - 1
    raise Refusal("SettingsInvalid", f"maxNumBatchedTokens: unknown policy {policy.policy!r}")


def _check_fixed(value: int, block_size: int, lmcache: LMCacheProfile | None) -> None:
    advice = (
        f"Choose a value from {block_size} to {2 * block_size - 1} in spec.engine.vllm.maxNumBatchedTokens, "
        f"or the policy TwoBlocksMinusOne."
    )
    found = f"maxNumBatchedTokens.value is {value}, but the unified block size N is {block_size}"
    if value < block_size:
        raise Refusal(
            "FixedTokensOutOfRange", f"{found}: LMCache demands that a step can hold a whole block of N tokens", advice
        )
    if lmcache is not None and lmcache.tokens_per_step == "OneBlockOnly" and value >= 2 * block_size:
        raise Refusal(
            "FixedTokensOutOfRange",
            f"{found}: LMCache before 0.5.4 demands that a step holds less than two blocks, since it keeps only the "
            "last one's state",
            advice,
        )


def verbatim(extra: Sequence[str], unsupported: Sequence[str], field: str, unsupported_name: str) -> list[Flag]:
    """Turn the user's own arguments into entries of the table."""
    flags = []
    if extra:
        flags.append(Flag("", tuple(extra), "passed on as written", f"{field}.extraArgs"))
    if unsupported:
        why = "passed on as written, after everything else, so it wins"
        flags.append(Flag("", tuple(unsupported), why, f"spec.unsupported.{unsupported_name}"))
    return flags


def to_json(value: Any) -> str:
    """Render a flag's JSON value canonically: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
