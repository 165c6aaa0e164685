"""The identity of a resource as far as it can be told before a pod has been probed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qwen_cached_serve.api.v1alpha1.environment import EnvVar
from qwen_cached_serve.core.accelerators import Capability
from qwen_cached_serve.core.compatibility import Open, Side
from qwen_cached_serve.core.plan import Plan
from qwen_cached_serve.core.resolve import Resolved
from qwen_cached_serve.inpod.builds import PACKAGES
from qwen_cached_serve.inpod.identity import (
    ENGINE_VARIABLE,
    RELEASES,
    SERVER_VARIABLE,
    argument_components,
    dtype,
    engine_arguments,
    engine_variables,
    hub_checkpoint,
    server_arguments,
    server_variables,
    speculative,
    variables,
)
from qwen_cached_serve.inpod.named_files import paths_in
from qwen_cached_serve.inpod.neutral import load_neutral
from qwen_cached_serve.inpod.profiles import load_profiles

_COMMIT = re.compile(r"[0-9a-f]{40}")
_AUTO = "auto"


def of_resource(
    label: str, resolved: Resolved, plan: Plan, *, capability: Capability | None, releases: dict[str, str] | None = None
) -> Side:
    """Side of a resource; `capability` of the GPUs it will get and `releases` in its image, where somebody told.

    `releases` names them by program; without it the image's tag is read.
    """
    known, opened = {}, {}
    for name, part in _parts(resolved, plan, capability, releases or {}).items():
        if isinstance(part, Open):
            opened[name] = part
        else:
            known[name] = part
    variables_open = _open_variables(ENGINE_VARIABLE, resolved.engine_env)
    settings = resolved.settings
    given = {variable.name: variable.value or "" for variable in resolved.engine_env}
    known |= variables(ENGINE_VARIABLE, engine_variables(settings, given))
    known |= variables(SERVER_VARIABLE, server_variables(settings))
    arguments = argument_components(
        engine_arguments(settings, plan.vllm_version), server_arguments(settings, plan.lmcache_version), str
    )
    # What lies at a path is seen in the pod only.
    opened |= {name: Open(f"the files at {value}") for name, value in arguments.items() if paths_in(value)}
    known |= {name: value for name, value in arguments.items() if name not in opened}
    return Side(
        label,
        {name: value for name, value in known.items() if name not in variables_open},
        predicted=frozenset(name for name in _PREDICTED if name in known),
        open=opened | variables_open,
        image_variables=True,
    )


_PREDICTED = (
    "blockSize",
    "chunkSize",
    "kernelBlockSize",
    "attentionBackend",
    "gdnPrefillBackend",
    "kvCacheDtype",
    "recurrentStateDtype",
    "mambaCacheMode",
)


def _parts(
    resolved: Resolved, plan: Plan, capability: Capability | None, releases: dict[str, str]
) -> dict[str, str | Open]:
    settings, predicted = resolved.settings, plan.predicted
    engine = settings.engine
    image = Open(f"what {resolved.image} holds", pinned="@sha256:" in resolved.image)
    vllm = releases.get("vllm") or resolved.vllm_version
    told = {"vllm": vllm, "lmcache": releases.get("lmcache")}
    by_probe = Open("the probe finds it")
    parts: dict[str, str | Open] = {
        "checkpoint": _checkpoint(resolved),
        "kvCacheDtype": dtype(engine.kv_cache_dtype or _AUTO),
        "recurrentStateDtype": dtype(engine.mamba_ssm_cache_dtype)
        if engine.mamba_ssm_cache_dtype not in (None, _AUTO)
        else Open("as the checkpoint says"),
        "mambaCacheMode": "align",
        "gdnPrefillBackend": predicted.gdn_prefill_backend if predicted else by_probe,
        "blockSize": str(predicted.block_size) if predicted else by_probe,
        "chunkSize": str(plan.chunk_size) if plan.chunk_size else by_probe,
        "kernelBlockSize": str(predicted.kernel_block_size) if predicted and predicted.kernel_block_size else by_probe,
        "attentionBackend": predicted.attention_backend if predicted else engine.attention_backend or by_probe,
        "tensorParallelSize": str(engine.tensor_parallel_size),
        "speculative": speculative(settings),
        "objectGroups": "separate"
        if load_profiles().for_lmcache(plan.lmcache_version).separate_object_groups
        else "one",
        "kvLayout": _AUTO,
        "modalities": "text" if engine.text_only else "all",
        "architecture": _architecture(engine.accelerator, capability),
    }
    parts |= {f"release {package}": told.get(package) or image for package in RELEASES}
    return parts | {f"build {package}": image for package in PACKAGES}


def _checkpoint(resolved: Resolved) -> str | Open:
    settings, model = resolved.settings, resolved.model
    if model.source == "HuggingFace":
        revision = settings.revision or "main"
        if _COMMIT.fullmatch(revision):
            return hub_checkpoint(revision)
        return Open(f"what {settings.model} at {revision} leads to on the hub")
    if model.image:
        reference = model.image.reference
        return Open(f"the files below {settings.model} in {reference}", pinned="@sha256:" in reference)
    return Open(f"the files below {settings.model} on claim {model.claim_name}")


def _architecture(accelerator: str, capability: Capability | None) -> str | Open:
    if accelerator == "CPU":
        return Open("the processor of the pod's node")
    if capability is None:
        return Open("the GPUs of the pod's node")
    return f"sm_{capability[0]}{capability[1]}"


def _open_variables(kind: str, env: Iterable[EnvVar]) -> dict[str, Open]:
    neutral = load_neutral()
    return {
        f"{kind}{variable.name}": Open("comes from another object")
        for variable in env
        if variable.value_from is not None
        and variable.value_from.field_ref is None
        and neutral.variable(variable.name) is None
    }
