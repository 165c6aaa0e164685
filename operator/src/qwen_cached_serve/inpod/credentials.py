"""Passwords and access keys of the second tiers: from the container's environment into the cache server.

LMCache 0.5.6 takes them as JSON on its command line (`valkey` no other way, `s3` without boto3 neither), where every
process of the pod and of the node can read them. So they come as environment variables that Kubernetes fills from
Secrets, and are put into the arguments by the process that becomes the cache server (docs/adr/0014): the command line
that the kernel shows, the recorded arguments, the status and the relay never hold them.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .facts import L2Tier
from .layout import Layout
from .profiles import load_profiles
from .programs import CODE_FOLDER, locate, python_of
from .refusal import Refusal
from .refusing import refuse

PASSWORD = "password"  # noqa: S105 - the name of an adapter's option, as the two below
ACCESS_KEY_ID = "aws_access_key_id"
SECRET_ACCESS_KEY = "aws_secret_access_key"  # noqa: S105
VERB = "lmcache-server"
_FLAG = "--l2-adapter"
_VALKEY_DEFAULT_USER = "default"


def variable(tier: str, secret: str) -> str:
    """Name of the environment variable that holds one secret of a tier; no two are the same."""
    return f"QCS_L2_{tier}_{secret}".replace("-", "_").upper()


def command(tiers: Sequence[L2Tier], argv: list[str]) -> list[str]:
    """What starts the cache server: its own command, or this package where secrets have to be added on the way."""
    if not any(tier.secrets for tier in tiers):
        return argv
    return [python_of("lmcache"), str(CODE_FOLDER), VERB]


def with_credentials(
    argv: Sequence[str], tiers: Sequence[L2Tier], environ: Mapping[str, str], *, swapped: bool
) -> list[str]:
    """Return the arguments with each tier's secrets in its adapter.

    The tiers' adapters come first and in their order; what a user appends by `unsupported` stays as it is. A secret
    whose variable is not there or empty (an optional reference) is left out. `swapped`: this LMCache hands a Valkey's
    user name over as the password and the password as the user name.
    """
    made, left = list(argv), list(tiers)
    for place, word in enumerate(argv):
        if word == _FLAG and left:
            made[place + 1] = _filled(argv[place + 1], left.pop(0), environ, swapped=swapped)
    return made


def _filled(spec: str, tier: L2Tier, environ: Mapping[str, str], *, swapped: bool) -> str:
    found = {secret: environ.get(variable(tier.name, secret), "") for secret in tier.secrets}
    if not found:
        return spec
    adapter: dict[str, Any] = json.loads(spec)
    if not all(found.values()):
        # A user name without its password, or half an access key, is refused in words that lead nowhere.
        adapter.pop("username", None)
    elif tier.type == "Valkey" and swapped:
        user = adapter.get("username", _VALKEY_DEFAULT_USER)
        adapter |= {"username": found[PASSWORD], "password": user}
    else:
        adapter |= found
    return json.dumps(adapter, separators=(",", ":"))


def run_lmcache(layout: Layout) -> int:
    """Become the cache server in this process."""
    try:
        settings, report = layout.settings(), layout.report()
        profile = load_profiles().for_lmcache(report.versions.lmcache)
        tiers = settings.cache.l2
        argv = with_credentials(
            layout.cache_server_argv(), tiers, os.environ, swapped=profile.valkey_credentials_swapped
        )
        script = locate(argv[0])
    except Refusal as refusal:
        return refuse(layout, "cache-server", refusal)
    # LMCache's own API answers with its environment on loopback.
    for tier in tiers:
        for secret in tier.secrets:
            os.environ.pop(variable(tier.name, secret), None)
    sys.argv = [script, *argv[1:]]
    runpy.run_path(script, run_name="__main__")
    return 0
