"""Environment of the programs: usage reporting is off unless the user turned it on (DESIGN D5)."""

from __future__ import annotations

from collections.abc import Mapping

_QUIET = {"LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}


def quiet(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy of `environ` with usage reporting off, where the user said nothing.

    `DO_NOT_TRACK` turns both programs off, so it is left unset too when the user answered for one of them.
    """
    answered = [name for name in _QUIET if name in environ]
    added = {name: value for name, value in _QUIET.items() if name not in environ}
    if answered:
        added.pop("DO_NOT_TRACK", None)
    return {**environ, **added}
