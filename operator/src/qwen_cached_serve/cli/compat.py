"""`qcs compat A B`: can two engines read each other's cache entries, and if not, what differs.

A and B are files (a probe's report, the answer of a relay's /report, a pod's termination message, a resource) or live
pods (`pod/NAME`). Of a pod the relay's report is read where its address can be reached, otherwise the message that the
cluster keeps of its probe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from qwen_cached_serve.cli.cluster import run
from qwen_cached_serve.cli.documents import Document, read_documents
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.planning import Options, plan_documents
from qwen_cached_serve.core.accelerators import capability_of
from qwen_cached_serve.core.compatibility import Comparison, Side, of_message, of_report
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.observed import PROBE, read_pod
from qwen_cached_serve.core.predicted_identity import of_resource
from qwen_cached_serve.inpod import message
from qwen_cached_serve.inpod.facts import FactsError, ProbeReport, load
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.connection import Origin
from qwen_cached_serve.kube.port import PODS, Manifest
from qwen_cached_serve.observe.pods import PodReader

COMPATIBLE, DIFFERENT, UNKNOWN = 0, 1, 2
"""Exit statuses; errors end with `UNKNOWN` too."""
_POD = ("pod/", "pods/")


def find_side(argument: str, namespace: str, options: Options, defaults: OperatorDefaults, origin: Origin) -> Side:
    """Read what an argument names.

    Raises:
        CliError: nothing there, or nothing that can be compared.

    """
    if argument.startswith(_POD):
        return _of_pod(argument.partition("/")[2], namespace, origin)
    documents = read_documents([argument])
    if len(documents) != 1:
        raise CliError(f"{argument}: holds {len(documents)} documents; compare one with one")
    return _of_document(documents[0], options, defaults)


def _of_document(document: Document, options: Options, defaults: OperatorDefaults) -> Side:
    data = document.data
    if document.ours:
        (planned,) = plan_documents([data], options, defaults)
        if not planned.resolved.cached:
            raise CliError(f"{document.label}: its cache is off, so there is nothing to share")
        capability = capability_of(options.gpu) if options.gpu else None
        told = {name: value for name, value in (("vllm", options.vllm), ("lmcache", options.lmcache)) if value}
        return of_resource(document.label, planned.resolved, planned.plan, capability=capability, releases=told)
    if isinstance(data, Mapping) and isinstance(data.get("report"), Mapping):
        data = data["report"]
    if isinstance(data, Mapping) and "block_size" in data:
        return _of_report(document.label, data)
    found = message.read(json.dumps(data)) if isinstance(data, Mapping) else None
    if isinstance(found, message.CompactReport):
        return _of_message(document.label, found)
    raise CliError(
        f"{document.label}: neither a probe's report nor a QwenCachedServe; a pod's report is what its relay answers "
        "on /report"
    )


def _of_report(label: str, data: Any) -> Side:
    try:
        return of_report(label, load(ProbeReport, data))
    except (FactsError, ValueError) as error:
        raise CliError(f"{label}: {error}") from error


def _of_message(label: str, found: message.CompactReport) -> Side:
    try:
        return of_message(label, found)
    except ValueError as error:
        raise CliError(f"{label}: {error}") from error


def _of_pod(name: str, namespace: str, origin: Origin) -> Side:
    label = f"pod/{name}"
    pod, answer = run(_read_pod(name, namespace, origin))
    if answer is not None:
        return _of_report(label, answer)
    end = read_pod(pod).container(PROBE).latest_end
    found = message.read(end.message) if end else None
    if isinstance(found, message.ProbeFailure):
        raise CliError(f"{label}: its probe failed: {found.code}: {found.message}")
    if found is None:
        raise CliError(f"{label}: its probe has not reported (yet), and its relay cannot be reached from here")
    return _of_message(label, found)


async def _read_pod(name: str, namespace: str, origin: Origin) -> tuple[Manifest, Any]:
    """The pod, and its report where its address can be reached."""
    client = await KubeClient.connect(origin)
    reader = PodReader()
    try:
        pod = await client.get(PODS, namespace, name)
        address = (pod.get("status") or {}).get("podIP")
        body = await reader.report(address) if address else None
        return pod, _report_in(body)
    finally:
        await reader.close()
        await client.close()


def _report_in(body: bytes | None) -> Any:
    try:
        answer = json.loads(body) if body else None
    except ValueError:
        return None
    return answer.get("report") if isinstance(answer, dict) else None


def status_of(comparison: Comparison) -> int:
    """Exit status of an answer."""
    if comparison.compatible is None:
        return UNKNOWN
    return COMPATIBLE if comparison.compatible else DIFFERENT


def as_json(first: Side, second: Side, comparison: Comparison) -> dict[str, Any]:
    """The answer as data; `compatible` is null while nothing differs and something is not known."""
    return {
        "compatible": comparison.compatible,
        "first": {"label": first.label, "identity": first.identity or None},
        "second": {"label": second.label, "identity": second.identity or None},
        "differences": [asdict(difference) for difference in comparison.differences],
        "unknown": [asdict(entry) for entry in comparison.unsettled],
    }


def as_text(first: Side, second: Side, comparison: Comparison) -> Iterator[str]:
    """The answer for people."""
    answer = {
        True: "compatible: they can read each other's cache entries",
        False: "not compatible: entries of one must never reach the other",
        None: "not known yet: nothing differs so far, but not everything can be told before a pod was probed",
    }
    yield answer[comparison.compatible]
    for side in (first, second):
        yield f"  {side.label}: {side.identity or 'no identity before a pod was probed'}"
    rows = [
        (entry.component, entry.first or "-", entry.second or "-", " (predicted)" if entry.predicted else "")
        for entry in comparison.differences
    ]
    yield from _table("differs:", rows)
    yield from _table("not known:", [(entry.component, entry.first or "-", entry.second or "-", "")
                                     for entry in comparison.unsettled])  # fmt: skip


def _table(title: str, rows: list[tuple[str, str, str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield title
    width = max(len(row[0]) for row in rows)
    for name, one, other, note in rows:
        yield f"  {name.ljust(width)}  {one}  |  {other}{note}"
