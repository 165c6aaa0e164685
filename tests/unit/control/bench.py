"""A reconciler on a stand-in API, and what a test does to both."""

import datetime as dt

from qwen_cached_serve.control.reconciler import Reconciler
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.records import record_of
from qwen_cached_serve.kube.port import CONTROLLER_REVISIONS, DEPLOYMENTS, SERVES
from qwen_cached_serve.observe.metrics import Metrics
from tests.unit.control.fake_api import FakeApi, serve

KEY = ("ns", "q")


class Bench:
    def __init__(self, **spec):
        self.api = FakeApi()
        self.api.store(serve(**spec))
        self.defaults = OperatorDefaults()
        self.unusable = {}  # optional kind -> why it cannot be used
        self.wanted = {}
        self.cache = self.api.cache()
        self.metrics = Metrics()
        self.now = dt.datetime(2026, 11, 29, tzinfo=dt.UTC)
        self.reconciler = self.restarted()

    def restarted(self):
        """A reconciler of a new process."""
        self.cache = self.api.cache()
        return Reconciler(
            port=self.api,
            cache=self.cache,
            metrics=self.metrics,
            defaults=self.defaults,
            problem=lambda kind, _: self.unusable.get(kind),
            wants=lambda key, kinds: self.wanted.update({key: set(kinds)}),
            utc_now=lambda: self.now,
        )

    async def look(self):
        self.api.requests.clear()
        return await self.reconciler.reconcile(KEY)

    def edit(self, **spec):
        old = self.api.of(SERVES)["q"]
        new = serve(generation=old["metadata"]["generation"] + 1, **spec)
        self.api.store({**old, "metadata": {**old["metadata"], **new["metadata"]}, "spec": new["spec"]})

    def status(self):
        return self.api.of(SERVES)["q"]["status"]

    def condition(self, kind):
        return next(entry for entry in self.status()["conditions"] if entry["type"] == kind)

    def annotate(self, **annotations):
        """Set annotations of the resource's own, by the part of their names after the slash; None takes one away."""
        old = self.api.of(SERVES)["q"]
        named = {f"qwencache.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        kept = {k: v for k, v in ((old["metadata"].get("annotations") or {}) | named).items() if v is not None}
        self.api.store({**old, "metadata": {**old["metadata"], "annotations": kept}})

    def revisions(self):
        """Stored revisions, oldest first."""
        found = self.api.of(CONTROLLER_REVISIONS).values()
        return [record_of(one) for one in sorted(found, key=lambda one: one["revision"])]

    def forget_revision_of(self, config_map):
        for record in self.revisions():
            if record.config_map == config_map:
                del self.api.objects["ControllerRevision", "ns", record.name]

    def template(self):
        return self.api.of(DEPLOYMENTS)["q"]["spec"]["template"]

    def settled(self):
        """What the Deployment controller reports when a roll is over."""
        live = self.api.of(DEPLOYMENTS)["q"]
        wanted = live["spec"]["replicas"]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), wanted)
        self.api.store({**live, "status": {"observedGeneration": 1, **counts}})
