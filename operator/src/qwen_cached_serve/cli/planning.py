"""`qcs plan`: from a file, a `config.json` or a model id to a plan; `plan_output` prints it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen_cached_serve.api.v1alpha1 import API_VERSION, KIND
from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.refusals import told_as_errors
from qwen_cached_serve.core.accelerators import capability_of, typical_gpu
from qwen_cached_serve.core.catalogue import known_models, lookup, refusal
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.geometry import Geometry, GeometryError, geometry_from_config
from qwen_cached_serve.core.plan import Environment, Plan, plan_resource
from qwen_cached_serve.core.resolve import Resolved, resolve
from qwen_cached_serve.inpod.profiles import load_profiles, parse_version


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says besides a file; absent = not said."""

    config: str | None = None
    model: str | None = None
    tensor_parallel_size: int | None = None
    kv_cache_dtype: str | None = None
    ssm_dtype: str | None = None
    conv_dtype: str | None = None
    speculative_method: str | None = None
    speculative_tokens: int | None = None
    block_size: int | None = None
    attention_backend: str | None = None
    gdn_prefill_backend: str | None = None
    accelerator: str | None = None
    gpu: str | None = None
    l1_size: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    vllm: str | None = None
    lmcache: str | None = None


SHAPING = {
    "tensor_parallel_size": "--tp",
    "kv_cache_dtype": "--kv-cache-dtype",
    "ssm_dtype": "--mamba-ssm-cache-dtype",
    "conv_dtype": "--mamba-cache-dtype",
    "speculative_method": "--speculative-method",
    "speculative_tokens": "--speculative-tokens",
    "block_size": "--block-size",
    "attention_backend": "--attention-backend",
    "gdn_prefill_backend": "--gdn-prefill-backend",
    "accelerator": "--accelerator",
    "l1_size": "--l1-size",
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "model": "MODEL",
}
"""Options that make a resource; with a file its spec says these."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and the resource it is for."""

    name: str
    resolved: Resolved
    plan: Plan


def target(word: str | None, file: str | None, model: str | None) -> tuple[str | None, str | None]:
    """Tell what the positional word means: returns the file and the model to plan, one of them None.

    A hub id is `owner/name`, so what ends like a resource file, is `-`, or exists as a file is a file.

    Raises:
        CliError: more than one thing to plan.

    """
    if word is not None:
        is_file = word == "-" or word.endswith((".yaml", ".yml", ".json")) or Path(word).is_file()
        if (file if is_file else model) is not None:
            raise CliError(f"{word}: given twice; name one {'file' if is_file else 'model'}")
        file, model = (word, model) if is_file else (file, word)
    if file is not None and model is not None:
        raise CliError(f"{model}: with a file (-f {file}), its spec names the model")
    return file, model


def plan_documents(documents: list[Any], options: Options, defaults: OperatorDefaults) -> list[Planned]:
    """Plan parsed resources.

    Raises:
        CliError: a resource that would be refused, or options that contradict the file.

    """
    given = [flag for field, flag in SHAPING.items() if getattr(options, field) is not None]
    if given:
        raise CliError(f"{', '.join(given)}: with a file, change its spec instead")
    geometry = _geometry(options.config) if options.config else None
    return [_plan(document, options, defaults, geometry) for document in documents]


def plan_options(options: Options, defaults: OperatorDefaults) -> Planned:
    """Plan what the options describe.

    Raises:
        CliError: nothing to plan, or values that the resource would be refused for.

    """
    if not options.config and not options.model:
        raise CliError("nothing to plan: give a MODEL (hub id), --config config.json or -f FILE")
    if options.model and not options.config and lookup(options.model) is None:
        raise CliError(f"{options.model}: {_unknown(options.model)}")
    geometry = _geometry(options.config) if options.config else None
    return _plan(_document(options), options, defaults, geometry)


def _unknown(model: str) -> str:
    reason = refusal(model)
    if reason:
        return f"not predicted: {reason}"
    return f"not in the catalogue ({', '.join(known_models())}); give its config.json by --config"


def _document(options: Options) -> dict[str, Any]:
    name = options.model or Path(options.config or "").resolve().parent.name
    vllm: dict[str, Any] = {
        "kvCacheDtype": options.kv_cache_dtype,
        "mambaSsmCacheDtype": options.ssm_dtype,
        "blockSize": options.block_size,
        "attentionBackend": options.attention_backend,
        "maxNumSeqs": options.max_num_seqs,
    }
    if options.speculative_tokens:
        vllm["speculative"] = {"method": options.speculative_method or "mtp", "tokens": options.speculative_tokens}
    # These have no field of their own: they are passed on as written, and the prediction reads them there.
    passed_on = {"--mamba-cache-dtype": options.conv_dtype, "--gdn-prefill-backend": options.gdn_prefill_backend}
    extra = [argument for flag, value in passed_on.items() if value for argument in (flag, value)]
    accelerator: dict[str, Any] = {"type": options.accelerator.upper() if options.accelerator else None}
    if options.tensor_parallel_size is not None:
        vllm["tensorParallelSize"] = options.tensor_parallel_size
        if accelerator["type"] != "CPU":
            accelerator["gpu"] = {"count": options.tensor_parallel_size}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "plan", "namespace": "default"},
        "spec": {
            "model": {"name": name, "maxModelLen": options.max_model_len},
            "engine": {"accelerator": accelerator, "vllm": vllm, "extraArgs": extra or None},
            "cache": {"l1": {"size": options.l1_size or "100Gi"}},
        },
    }


def _geometry(config: str) -> Geometry:
    path = Path(config)
    if path.is_dir():
        path /= "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CliError(f"--config {path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CliError(f"--config {path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise CliError(f"--config {path}: expected a JSON object, the model's config.json")
    try:
        return geometry_from_config(data)
    except GeometryError as error:
        raise CliError(f"--config {path}: {error}") from error


def _plan(document: Any, options: Options, defaults: OperatorDefaults, geometry: Geometry | None) -> Planned:
    for flag, version in (("--vllm", options.vllm), ("--lmcache", options.lmcache)):
        if version is not None and parse_version(version) is None:
            advised = load_profiles().advised_pair
            raise CliError(f"{flag} {version}: not a release number; write it as in {advised}")
    with told_as_errors():
        capability = capability_of(options.gpu) if options.gpu else None
        resolved = resolve(parse(document), defaults)
    gpu = typical_gpu(options.gpu) if options.gpu else None
    environment = Environment(options.vllm, options.lmcache, capability, gpu=gpu)
    return Planned(resolved.name, resolved, plan_resource(resolved, environment, geometry))
