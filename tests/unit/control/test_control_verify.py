"""When pods are asked, and that an answer belongs to one life of a pod's programs."""

import asyncio

from qwen_cached_serve.control.cache import OWNER_UID_LABEL, Cache, Packed
from qwen_cached_serve.control.queue import WorkQueue
from qwen_cached_serve.control.verify import Verifier
from qwen_cached_serve.core.observed import Verification, observe
from qwen_cached_serve.kube.port import PODS, SERVES

UID, KEY = "uid-q", ("ns", "q")


def pod(ready="True", restarts=0, deleting=False, address="10.0.0.1", sidecar=True):
    metadata = {"namespace": "ns", "name": "p", "uid": "uid-p", "labels": {OWNER_UID_LABEL: UID}}
    running = {"state": {"running": {}}, "ready": True, "started": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | ({"deletionTimestamp": "x"} if deleting else {}),
        "spec": {"nodeName": "n"},
        "status": {
            "podIP": address,
            "conditions": [{"type": "Ready", "status": ready}],
            "initContainerStatuses": [{"name": "cache-server", "restartCount": 0, **running}] if sidecar else [],
            "containerStatuses": [{"name": "engine", "restartCount": restarts, **running}],
        },
    }


class FakeReader:
    """Answers from a list, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def read(self, address):
        self.asked.append(address)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


GOOD = Verification(784, 784, (784,), registered=True)
LOST = Verification(784, 784, (), registered=False)


def made(reader, manifest):
    cache, queue = Cache(), WorkQueue()
    serve = Packed({"kind": SERVES.kind, "metadata": {"namespace": "ns", "name": "q", "uid": UID}})
    pods = [Packed(manifest)]
    cache.attach({SERVES: {KEY: [serve], UID: [serve]}, PODS: {UID: pods}})
    return Verifier(reader=reader, cache=cache, queue=queue), queue, pods


def answer(verifier, manifest):
    return verifier.enriched(observe(None, (), [manifest])).pods[0].verification


async def test_a_ready_pod_is_asked_once_and_its_owner_looked_at():
    reader = FakeReader(GOOD)
    verifier, queue, pods = made(reader, pod())
    await verifier.round()
    await verifier.round()
    assert reader.asked == ["10.0.0.1"]
    assert await asyncio.wait_for(queue.get(), 1) == KEY
    assert answer(verifier, pods[0].manifest()) == GOOD


async def test_pods_that_cannot_answer_are_not_asked():
    for manifest in (pod(ready="False"), pod(deleting=True), pod(address=""), pod(sidecar=False)):
        reader = FakeReader(GOOD)
        verifier, _, _ = made(reader, manifest)
        await verifier.round()
        assert reader.asked == []


async def test_an_answer_of_a_former_life_says_nothing():
    reader = FakeReader(GOOD, None)
    verifier, _, pods = made(reader, pod())
    await verifier.round()
    pods[0] = Packed(pod(restarts=1))
    assert answer(verifier, pods[0].manifest()) is None
    await verifier.round()
    assert len(reader.asked) == 2
    assert answer(verifier, pods[0].manifest()) is None


async def test_unreachable_is_unknown_and_no_reason_to_look():
    verifier, queue, pods = made(FakeReader(None), pod())
    await verifier.round()
    assert answer(verifier, pods[0].manifest()) is None
    assert len(queue) == 0


async def test_whatever_a_pod_answers_the_others_are_asked():
    class Broken(FakeReader):
        async def read(self, address):
            await super().read(address)
            raise RecursionError

    verifier, queue, pods = made(reader := Broken(None), pod())
    await verifier.round()
    assert (reader.asked, answer(verifier, pods[0].manifest()), len(queue)) == (["10.0.0.1"], None, 0)
    await verifier.round()
    assert len(reader.asked) == 1  # and it is left in peace for a while


async def test_the_same_answer_again_is_no_reason_to_look_but_another_is():
    reader = FakeReader(GOOD, GOOD, LOST)
    verifier, queue, pods = made(reader, pod())
    await verifier.round()
    await queue.get()
    queue.done(KEY)
    for expected in (0, 1):
        verifier._known["uid-p"].due = 0
        await verifier.round()
        assert len(queue) == expected
    assert answer(verifier, pods[0].manifest()) == LOST


async def test_pods_that_are_gone_are_forgotten():
    verifier, _, pods = made(FakeReader(GOOD), pod())
    await verifier.round()
    pods.clear()
    await verifier.round()
    assert verifier._known == {}
