"""Rules about the engine and its accelerator."""

from __future__ import annotations

import re

from qwen_cached_serve.api.base import NAME, SUBDOMAIN
from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import not_implemented, union
from qwen_cached_serve.api.v1alpha1 import defaults

_EXTENDED_RESOURCE = rf"{SUBDOMAIN}/{NAME}"

_GPU = {"engine": {"accelerator": {"type": "GPU", "gpu": {"count": 1}}}}
_CPU = {"engine": {"accelerator": {"type": "CPU"}}}
_COUNT_CEL = "self.?accelerator.?gpu.?count.orValue(1)"
_IS_CPU_CEL = "self.?accelerator.?type.orValue('GPU') == 'CPU'"
_TP_CEL = "self.?vllm.?tensorParallelSize"
_NO_SLICE_CEL = (
    "!has(self.accelerator) || !has(self.accelerator.gpu) || !has(self.accelerator.gpu.resourceName) || "
    "!self.accelerator.gpu.resourceName.contains('/mig-')"
)


def _gpu(engine: Node) -> Node:
    return engine.get("accelerator", {}).get("gpu", {})


def _count(engine: Node) -> int:
    return int(_gpu(engine).get("count", defaults.GPU_COUNT))


def _is_cpu(engine: Node) -> bool:
    return bool(engine.get("accelerator", {}).get("type", defaults.ACCELERATOR) == "CPU")


def _parallel(engine: Node, absent: int) -> int:
    return int(engine.get("vllm", {}).get("tensorParallelSize", absent))


def _slices_are_single(engine: Node) -> bool:
    is_slice = "/mig-" in _gpu(engine).get("resourceName", "")
    return _is_cpu(engine) or not is_slice or _parallel(engine, _count(engine)) == 1


def _parallel_over(size: int | None, **gpu: object) -> dict[str, Node]:
    vllm = {"vllm": {"tensorParallelSize": size}} if size else {}
    return {"engine": {"accelerator": {"type": "GPU", "gpu": gpu}, **vllm}}


def _tokens(**block: object) -> dict[str, Node]:
    return {"engine": {"vllm": {"maxNumBatchedTokens": block}}}


def _resource(name: str) -> dict[str, Node]:
    return {"engine": {"accelerator": {"gpu": {"resourceName": name}}}}


RULES = (
    not_implemented(
        "spec.engine", "type", "SGLang", instead="set engine.type: vLLM or remove it", base={"type": "vLLM"}
    ),
    Rule(
        name="engine.vllm-needs-type",
        scopes=("spec.engine",),
        cel="!has(self.vllm) || self.?type.orValue('vLLM') == 'vLLM'",
        holds=lambda engine: "vllm" not in engine or engine.get("type", defaults.ENGINE_TYPE) == "vLLM",
        field=".vllm",
        problem="engine.vllm goes with type vLLM only",
        remedy="set engine.type: vLLM or remove engine.vllm",
        accepts=({"engine": {"type": "vLLM", "vllm": {}}}, {"engine": {"vllm": {}}}),
        rejects=({"engine": {"type": "SGLang", "vllm": {}}},),
    ),
    not_implemented(
        "spec.engine",
        "blockSizePolicy",
        "Portable",
        instead="remove engine.blockSizePolicy or set it to Native",
        base={"blockSizePolicy": "Native"},
    ),
    *union(
        "spec.engine.accelerator",
        {"GPU": "gpu"},
        default=defaults.ACCELERATOR,
        required=(),
        examples={"GPU": _GPU, "CPU": _CPU},
    ),
    *(
        not_implemented(
            "spec.engine.accelerator.gpu",
            "cacheAccess",
            access,
            instead="remove engine.accelerator.gpu.cacheAccess or set it to RuntimeClass",
            base={"cacheAccess": "RuntimeClass"},
        )
        for access in ("CDI", "DRA")
    ),
    Rule(
        name="engine.accelerator.gpu.resourceName-extended",
        scopes=("spec.engine.accelerator.gpu.resourceName",),
        cel=f"self.matches({quote(f'^{_EXTENDED_RESOURCE}$')}) && !self.split('/')[0].endsWith('kubernetes.io')",
        holds=lambda name: (
            bool(re.fullmatch(_EXTENDED_RESOURCE, name)) and not name.split("/")[0].endswith("kubernetes.io")
        ),
        problem="engine.accelerator.gpu.resourceName is not the name of an extended resource",
        remedy="write vendor domain and name, such as nvidia.com/gpu, nvidia.com/mig-3g.40gb or amd.com/gpu",
        accepts=tuple(
            _resource(name)
            for name in ("nvidia.com/mig-3g.40gb", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915")
        ),
        rejects=tuple(
            _resource(name) for name in ("gpu", "nvidia.com/", "nvidia.com/gpu:1", "kubernetes.io/gpu", "A/b")
        ),
    ),
    Rule(
        name="engine.vllm.tensorParallelSize-exceeds-gpus",
        scopes=("spec.engine",),
        cel=f"{_IS_CPU_CEL} || {_TP_CEL}.orValue(1) <= {_COUNT_CEL}",
        holds=lambda engine: _is_cpu(engine) or _parallel(engine, 1) <= _count(engine),
        field=".vllm.tensorParallelSize",
        problem="engine.vllm.tensorParallelSize is larger than engine.accelerator.gpu.count",
        remedy="raise the count or lower the size; without a size all GPUs of the pod are used",
        accepts=(_parallel_over(2, count=2), _parallel_over(None, count=8)),
        rejects=(_parallel_over(2, count=1), {"engine": {"vllm": {"tensorParallelSize": 2}}}),
    ),
    Rule(
        name="engine.vllm.tensorParallelSize-divides-gpus",
        scopes=("spec.engine",),
        cel=(
            f"{_IS_CPU_CEL} || {_TP_CEL}.orValue(1) > {_COUNT_CEL} || "
            f"{_COUNT_CEL} % {_TP_CEL}.orValue({_COUNT_CEL}) == 0"
        ),
        holds=lambda engine: (
            _is_cpu(engine)
            or _parallel(engine, 1) > _count(engine)
            or _count(engine) % _parallel(engine, _count(engine)) == 0
        ),
        field=".vllm.tensorParallelSize",
        problem="engine.vllm.tensorParallelSize does not divide engine.accelerator.gpu.count, so GPUs would stay idle",
        remedy="give both the same number, or drop the size: all GPUs of the pod are used then",
        accepts=(_parallel_over(2, count=4),),
        rejects=(_parallel_over(2, count=3), _parallel_over(3, count=4)),
    ),
    Rule(
        name="engine.vllm.tensorParallelSize-on-cpu",
        scopes=("spec.engine",),
        cel=f"!({_IS_CPU_CEL}) || {_TP_CEL}.orValue(1) == 1",
        holds=lambda engine: not _is_cpu(engine) or _parallel(engine, 1) == 1,
        field=".vllm.tensorParallelSize",
        problem="engine.vllm.tensorParallelSize above 1 is not supported on CPU",
        remedy="remove it",
        accepts=({"engine": {"accelerator": {"type": "CPU"}, "vllm": {"tensorParallelSize": 1}}},),
        rejects=({"engine": {"accelerator": {"type": "CPU"}, "vllm": {"tensorParallelSize": 2}}},),
    ),
    Rule(
        name="engine.accelerator-no-parallel-slices",
        scopes=("spec.engine",),
        cel=f"{_IS_CPU_CEL} || {_NO_SLICE_CEL} || {_TP_CEL}.orValue({_COUNT_CEL}) == 1",
        holds=_slices_are_single,
        field=".accelerator.gpu.resourceName",
        problem="engine.accelerator.gpu.resourceName names a MIG slice, and slices cannot work in tensor parallel",
        remedy="set engine.accelerator.gpu.count: 1 with a larger slice, or request whole GPUs",
        accepts=(_parallel_over(None, count=1, resourceName="nvidia.com/mig-3g.40gb"),),
        rejects=(
            _parallel_over(2, count=2, resourceName="nvidia.com/mig-1g.10gb"),
            _parallel_over(None, count=2, resourceName="nvidia.com/mig-1g.10gb"),
        ),
    ),
    Rule(
        name="engine.vllm.maxNumBatchedTokens-value-required",
        scopes=("spec.engine.vllm.maxNumBatchedTokens",),
        cel="self.?policy.orValue('TwoBlocksMinusOne') != 'Fixed' || has(self.value)",
        holds=lambda tokens: tokens.get("policy") != "Fixed" or "value" in tokens,
        field=".value",
        problem="engine.vllm.maxNumBatchedTokens.policy Fixed needs a value",
        remedy="set value to a number from N up to 2N-1, or choose TwoBlocksMinusOne",
        accepts=(_tokens(policy="Fixed", value=1567), _tokens(policy="OneBlock")),
        rejects=(_tokens(policy="Fixed"),),
    ),
    Rule(
        name="engine.vllm.maxNumBatchedTokens-value-needs-policy",
        scopes=("spec.engine.vllm.maxNumBatchedTokens",),
        cel="!has(self.value) || self.?policy.orValue('TwoBlocksMinusOne') == 'Fixed'",
        holds=lambda tokens: "value" not in tokens or tokens.get("policy") == "Fixed",
        field=".policy",
        problem="engine.vllm.maxNumBatchedTokens.value counts with policy Fixed only",
        remedy="set policy: Fixed or remove the value",
        accepts=(_tokens(policy="Fixed", value=784), _tokens()),
        rejects=(_tokens(value=1567), _tokens(policy="OneBlock", value=784)),
    ),
    Rule(
        name="engine.vllm.maxNumSeqs-within-tokens",
        scopes=("spec.engine.vllm",),
        cel="self.?maxNumSeqs.orValue(1) <= self.?maxNumBatchedTokens.?value.orValue(65536)",
        holds=lambda vllm: vllm.get("maxNumSeqs", 1) <= vllm.get("maxNumBatchedTokens", {}).get("value", 65536),
        field=".maxNumSeqs",
        problem="engine.vllm.maxNumSeqs is larger than engine.vllm.maxNumBatchedTokens.value, which vLLM refuses",
        remedy="lower maxNumSeqs",
        accepts=({"engine": {"vllm": {"maxNumSeqs": 784, "maxNumBatchedTokens": {"policy": "Fixed", "value": 784}}}},),
        rejects=({"engine": {"vllm": {"maxNumSeqs": 785, "maxNumBatchedTokens": {"policy": "Fixed", "value": 784}}}},),
    ),
)
