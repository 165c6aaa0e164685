"""What a pod finds that is made now: image, node and GPU play no part in the template, so the test decides per pod."""

import asyncio
import contextlib

from qwen_cached_serve.kube.port import PODS, ApiError
from tests.cluster.operator_resources import MESSAGE_ANNOTATION

AWAITS = "qcs.test/awaits-report"


class Registry:
    """What a pod gets that is made now: the other half of a tag, as nodes and kubelets see it."""

    def __init__(self, api, namespace, first):
        self.api = api
        self.namespace = namespace
        self.choose = lambda _pod: first
        self.least_ready = None
        """The fewest pods that were ready at any moment since this was set to a number."""

    async def run(self):
        while True:
            with contextlib.suppress(ApiError):  # a busy API server, or a pod that went meanwhile
                await self.step()
            await asyncio.sleep(0.1)

    async def step(self):
        pods = await self.api.list_all(PODS, self.namespace)
        live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if self.least_ready is not None:
            self.least_ready = min(self.least_ready, sum(is_ready(pod) for pod in live))
        for pod in live:
            annotations = pod["metadata"].get("annotations") or {}
            text = None if MESSAGE_ANNOTATION in annotations else self.choose(pod)
            if text:
                patch = {"metadata": {"annotations": {MESSAGE_ANNOTATION: text}}}
                await self.api.merge(PODS, self.namespace, pod["metadata"]["name"], patch, manager="test")


def is_ready(pod):
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def waiting(resource, **pod):
    return {**resource, "spec": {**resource["spec"], "pod": {**pod, "annotations": {AWAITS: "yes"}}}}
