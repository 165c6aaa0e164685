"""From a resource to the manifests of its children, remembered per generation: most looks at a resource change
nothing.

Everything that decides is in `api` and `core`; this only puts the steps in a row, and turns each step's refusal
into one kind of answer.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from qwen_cached_serve.api.v1alpha1 import QwenCachedServe
from qwen_cached_serve.api.validate import InvalidResource, parse
from qwen_cached_serve.control import drift
from qwen_cached_serve.control.cache import Key
from qwen_cached_serve.core.budget import BudgetError
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults, vllm_version_of
from qwen_cached_serve.core.inputs import spec_hash, tuning_hash
from qwen_cached_serve.core.plan import Plan, plan_resource
from qwen_cached_serve.core.probed_with import digest_of
from qwen_cached_serve.core.records import Content
from qwen_cached_serve.core.resolve import Resolved, ResolveError, resolve
from qwen_cached_serve.core.revision import Inputs
from qwen_cached_serve.core.tuning import Tuning, as_data, tuned
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.inpod.flags import tokens_per_step
from qwen_cached_serve.inpod.profiles import load_profiles
from qwen_cached_serve.inpod.refusal import Refusal
from qwen_cached_serve.kube.port import CONFIG_MAPS, DEPLOYMENTS, SERVES, SERVICE_ACCOUNTS, Manifest
from qwen_cached_serve.render.manifests import RenderError, render_children

FRESH = 8


class SpecRefused(ValueError):  # noqa: N818 - a state of the resource, not a failure of ours
    """A spec that cannot be carried out; each problem names the field and says what to do."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Desired:
    """What a resource asks for, decided and rendered."""

    resolved: Resolved
    plan: Plan
    inputs: Inputs
    content_hash: str
    """Of the pods' part as this operator renders it."""
    text: bytes
    """The manifests as JSON: hundreds of resources are remembered."""
    tuning: Tuning = ()
    """What of it the operator adjusted by itself."""
    probed_with: str = ""
    """Digest of everything that N may depend on (`core.probed_with`)."""

    def manifests(self) -> list[Manifest]:
        """Return the manifests, stamped with their hashes; ConfigMaps condensed (see `drift.condensed`)."""
        unpacked: list[Manifest] = json.loads(self.text)
        return unpacked

    def with_manifests(self, manifests: Iterable[Manifest]) -> Desired:
        """Return it with other manifests, made from what `manifests` returned."""
        return dataclasses.replace(self, text=_text(manifests))


class Designer:
    """Makes `Desired`s and remembers the last one of every resource."""

    def __init__(self, defaults: OperatorDefaults) -> None:
        self._defaults = defaults
        self._made: dict[Key, tuple[tuple[str, int], Desired]] = {}
        self._tuned: dict[Key, tuple[Desired, Desired]] = {}
        """The last tuned one of a resource, behind the plain one that it was made from."""
        self._fresh: list[tuple[Resolved, tuple[Manifest, ...]]] = []

    def desired(self, serve: Manifest) -> Desired:
        """Return what the resource asks for.

        Raises:
            SpecRefused: it cannot be carried out.

        """
        metadata = serve["metadata"]
        key = metadata["namespace"], metadata["name"]
        version = metadata["uid"], int(metadata.get("generation") or 0)
        known = self._made.get(key)
        if known is not None and known[0] == version:
            return known[1]
        parsed = _parse(serve)
        resolved = self._resolve(parsed)
        _refuse_impossible_tokens(serve, resolved)
        inputs = Inputs(
            spec_hash=spec_hash(parsed.spec),
            tuning_hash="",
            image=resolved.image,
            image_from="Spec" if resolved.image_given else "Operator",
        )
        made = self._desired(serve["spec"], resolved, inputs, ())
        self._made[key] = version, made
        return made

    def tuned(self, serve: Manifest, plain: Desired, tuning: Tuning, image: str | None = None) -> Desired:
        """Return what a resource asks for with a tuning; `plain` is what `desired` returned, `image` a frozen one."""
        if not tuning:
            return plain
        key = serve["metadata"]["namespace"], serve["metadata"]["name"]
        image = image or plain.inputs.image
        known = self._tuned.get(key)
        if known and known[0] is plain and (known[1].tuning, known[1].inputs.image) == (tuning, image):
            return known[1]
        resolved = dataclasses.replace(tuned(plain.resolved, tuning), image=image, vllm_version=vllm_version_of(image))
        inputs = dataclasses.replace(plain.inputs, tuning_hash=tuning_hash(as_data(tuning)), image=image)
        made = self._desired(serve["spec"], resolved, inputs, tuning)
        self._tuned[key] = plain, made
        return made

    def _desired(self, spec: Mapping[str, Any], resolved: Resolved, inputs: Inputs, tuning: Tuning) -> Desired:
        whole = self._render(resolved)
        # A new generation is usually applied right away; keeping a few whole saves rendering them a second time.
        self._fresh = [*self._fresh[1 - FRESH :], (resolved, whole)]
        return Desired(
            resolved=resolved,
            plan=plan_resource(resolved),
            inputs=inputs,
            content_hash=content_of(spec, whole).hash,
            text=packed(whole),
            tuning=tuning,
            probed_with=digest_of(resolved),
        )

    def whole(self, desired: Desired) -> tuple[Manifest, ...]:
        """Return the manifests with everything in them, ready to be applied."""
        for resolved, manifests in self._fresh:
            if resolved is desired.resolved:
                return manifests
        return self._render(desired.resolved)

    def warm_up(self) -> None:
        """Take the whole way once for a made-up resource, so that the first real one need not wait for imports."""
        self._render(self._resolve(_parse(_SAMPLE)))

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a resource that is gone."""
        self._made.pop(key, None)
        self._tuned.pop(key, None)

    def resolved_as_stored(self, serve: Manifest, spec: Mapping[str, Any], image: str) -> Resolved:
        """Return what a revision's stored spec means, with its frozen image.

        Raises:
            SpecRefused: this release judges the spec otherwise than the one that stored it.

        """
        stored = {**serve, "spec": {**spec, "engine": {**(spec.get("engine") or {}), "image": image}}}
        return self._resolve(_parse(stored))

    def _resolve(self, parsed: QwenCachedServe) -> Resolved:
        try:
            return resolve(parsed, self._defaults)
        except (ResolveError, BudgetError) as error:
            raise SpecRefused((str(error),)) from error

    @staticmethod
    def _render(resolved: Resolved) -> tuple[Manifest, ...]:
        try:
            rendered = render_children(children(resolved, _scripts()))
        except (RenderError, yaml.YAMLError) as error:
            # The checks before should have caught it. The status says so, which an endless exception would not.
            problem = (
                f"spec: this operator cannot write it down as Kubernetes objects ({error}); change the field that is "
                "named here, and report it, since the field should have been refused by name"
            )
            raise SpecRefused((problem,)) from error
        return tuple(drift.stamped(manifest) for manifest in rendered)


def _parse(serve: Manifest) -> QwenCachedServe:
    try:
        return parse(serve)
    except InvalidResource as error:
        raise SpecRefused(tuple(str(problem) for problem in error.problems)) from error


def packed(manifests: Iterable[Manifest]) -> bytes:
    """Return manifests as they are remembered: JSON, ConfigMaps condensed."""
    condensed = [drift.condensed(one) if one["kind"] == CONFIG_MAPS.kind else one for one in manifests]
    return _text(condensed)


def _text(manifests: Iterable[Manifest]) -> bytes:
    return json.dumps(list(manifests), separators=(",", ":")).encode()


def content_of(spec: Mapping[str, Any], whole: Iterable[Manifest], tuning: Tuning = ()) -> Content:
    """Take the pods' part out of the manifests of a resource."""
    by_kind = {manifest["kind"]: drift.unstamped(manifest) for manifest in whole}
    return Content(
        spec=spec,
        config_map=by_kind[CONFIG_MAPS.kind],
        template=by_kind[DEPLOYMENTS.kind]["spec"]["template"],
        service_account=by_kind.get(SERVICE_ACCOUNTS.kind),
        tuning=as_data(tuning),
    )


def _refuse_impossible_tokens(serve: Manifest, resolved: Resolved) -> None:
    """Refuse a new `Fixed` number of tokens that the probed N rules out: rolling it out would only end what serves.

    Nothing is concluded without a probed N, from an N that other settings gave, or about a spec that was accepted
    already (this process may have been started since): only a probe decides (D1).

    Raises:
        SpecRefused: with the range.

    """
    status = serve.get("status") or {}
    block = status.get("blockSize") or {}
    probed = block.get("probed")
    if not probed or _accepted(serve, status) or block.get("probedWith") != digest_of(resolved):
        return
    try:
        lmcache = (status.get("resolved") or {}).get("lmcache")
        rule = load_profiles().for_lmcache(lmcache) if lmcache else None
        tokens_per_step(resolved.settings, int(probed), rule)
    except Refusal as refusal:
        problem = f"spec.engine.vllm.maxNumBatchedTokens: {refusal.message}; {refusal.hint.removesuffix('.')}"
        raise SpecRefused((problem,)) from refusal


def _accepted(serve: Manifest, status: Mapping[str, Any]) -> bool:
    if status.get("observedGeneration") != serve["metadata"].get("generation"):
        return False
    return any(entry["type"] == "SpecAccepted" and entry["status"] == "True" for entry in status.get("conditions", ()))


_SAMPLE: Manifest = {
    "apiVersion": SERVES.api_version,
    "kind": SERVES.kind,
    "metadata": {"namespace": "default", "name": "sample", "uid": "sample"},
    "spec": {"model": {"name": "sample/sample"}, "cache": {"l1": {"size": "1Gi"}}, "engine": {"image": "sample"}},
}


@functools.cache
def _scripts() -> Mapping[str, str]:
    return bundle.files()
