"""Carrying an eviction out: what `core.evictions` decided, once the status that names it is stored.

The order is what makes it safe to be ended at any moment: the mark first, then the request, by the pod's uid. A process
that ends in between is followed by one that finds the mark and sends it again; a pod that is gone already is what was
wanted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import structlog

from qwen_cached_serve.control.reporter import Reporter
from qwen_cached_serve.core.events import recycled
from qwen_cached_serve.core.eviction_memory import Eviction
from qwen_cached_serve.core.refusals import shorten
from qwen_cached_serve.kube.port import Budget, Forbidden, Manifest, Port
from qwen_cached_serve.observe.metrics import Metrics

log = structlog.get_logger(__name__)

_SENT = 256


class Evictor:
    """See the module's text."""

    def __init__(self, port: Port, reporter: Reporter, metrics: Metrics) -> None:
        self._port = port
        self._reporter = reporter
        self._metrics = metrics
        self._sent: OrderedDict[str, None] = OrderedDict()
        """Uids of pods that were let go; the watch shows it a moment later."""

    async def evict(self, serve: Manifest, eviction: Eviction) -> Mapping[str, str]:
        """Evict one pod; returns by its uid why it is held back, where the status does not say that yet.

        Raises:
            ApiError: trouble that is not about this pod.

        """
        if not _stored(serve, eviction):
            # An older definition has no field for it, and without a memory there is no bound.
            log.warning(
                "pod not evicted: the installed CustomResourceDefinition has no status.evictions", pod=eviction.pod
            )
            return {}
        if eviction.uid in self._sent:
            return {}
        try:
            there = await self._port.evict(serve["metadata"]["namespace"], eviction.pod, uid=eviction.uid)
        except (Budget, Forbidden) as refusal:
            if isinstance(refusal, Forbidden) and refusal.namespace_terminating:
                raise
            self._metrics.evicted(eviction.reason, "held_back")
            words = shorten(refusal.message)  # a policy engine's denial may be long
            return {} if words == eviction.held_back else {eviction.uid: words}
        self._metrics.evicted(eviction.reason, "evicted" if there else "gone")
        self._sent[eviction.uid] = None
        while len(self._sent) > _SENT:
            self._sent.popitem(last=False)
        if there:
            log.info("pod evicted", pod=eviction.pod, reason=eviction.reason, held_back=bool(eviction.held_back))
            await self._reporter.say(serve, recycled(eviction))
        return {}


def _stored(serve: Manifest, eviction: Eviction) -> bool:
    return any(one.get("uid") == eviction.uid for one in (serve.get("status") or {}).get("evictions") or ())
