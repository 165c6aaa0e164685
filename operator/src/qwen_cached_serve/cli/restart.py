"""`qcs restart`: have the pods replaced, as `kubectl rollout restart` does for a Deployment.

It writes the time into an annotation of the resource; the operator makes a revision for it, rendered by the release
that runs now. Taking the annotation away later does nothing.
"""

from __future__ import annotations

import datetime as dt

from qwen_cached_serve.cli.cluster import ask
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.history import read
from qwen_cached_serve.core.records import RESTART_ANNOTATION, later
from qwen_cached_serve.core.revision import newest_restart
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import SERVES


def restart(origin: Origin, namespace: str, name: str, now: dt.datetime) -> str:
    """Ask for a restart; return what was done as a sentence.

    Raises:
        CliError: it would have no effect now, or the cluster refuses.

    """

    async def work(client: KubeClient) -> str:
        stored = await read(client, namespace, name)
        if stored.held:
            raise CliError(
                f"{name}: its pods are held at a former revision; change the spec or take the hold off first "
                "(`qcs history` shows the revisions)"
            )
        stamp = now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        newest = newest_restart(stored.records)
        if newest and not later(stamp, newest):
            raise CliError(
                f"{name}: the last restart is stamped {newest}, and a request of {stamp} would do nothing; "
                "compare this machine's clock with the one that asked last, or try again after that time"
            )
        await client.annotate(SERVES, namespace, name, {RESTART_ANNOTATION: stamp})
        if (stored.resource.get("spec") or {}).get("lifecycle") == "Paused":
            return f"{name}: asked for at {stamp}; spec.lifecycle is Paused, so it waits until it is Running again"
        return f"{name}: restart asked for at {stamp}"

    return ask(origin, work)
