"""Rules about variables and arguments, whatever their names."""

from __future__ import annotations

import re

from qwen_cached_serve.api.rules.rule import Node, Rule
from qwen_cached_serve.api.rules.shapes import CONTAINERS, for_each_container, fragment

_ARGUMENT_LISTS = (
    "spec.engine.extraArgs",
    "spec.cache.extraArgs",
    "spec.unsupported.engineArgs",
    "spec.unsupported.cacheServerArgs",
)
_TEXT_LIMIT = 32768
"""Characters in all arguments, or all variables, of one container: it fits several times into the limits of etcd and
of client-side apply's annotation (case B60)."""


def _one_value(variable: Node) -> bool:
    return "value" not in variable or "valueFrom" not in variable


def _kv_space_is_whole(variable: Node) -> bool:
    if variable["name"] != "VLLM_CPU_KVCACHE_SPACE":
        return True
    return re.fullmatch("[1-9][0-9]{0,4}", variable.get("value", "")) is not None


def _one_source(source: Node) -> bool:
    return len(source) == 1


def _variables(*variables: Node) -> Node:
    return {"env": list(variables)}


RULES = (
    Rule(
        name="env-value-or-valueFrom",
        scopes=tuple(f"{path}.env[]" for path in CONTAINERS),
        cel="!has(self.value) || !has(self.valueFrom)",
        holds=_one_value,
        problem="a variable has value and valueFrom",
        remedy="remove one of them",
        accepts=for_each_container((_variables({"name": "A", "value": "1"}), _variables({"name": "A"}))),
        rejects=for_each_container(
            (_variables({"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),)
        ),
    ),
    Rule(
        name="engine.env-VLLM_CPU_KVCACHE_SPACE",
        scopes=("spec.engine.env[]",),
        cel="self.name != 'VLLM_CPU_KVCACHE_SPACE' || (has(self.value) && self.value.matches('^[1-9][0-9]{0,4}$'))",
        holds=_kv_space_is_whole,
        field=".value",
        problem="VLLM_CPU_KVCACHE_SPACE has to be a whole number of GiB, written out: the memory limit follows from it",
        remedy="write a number such as '4'",
        accepts=({"engine": {"env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "4"}]}},),
        rejects=(
            {"engine": {"env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "0.5"}]}},
            {"engine": {"env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "0"}]}},
            {"engine": {"env": [{"name": "VLLM_CPU_KVCACHE_SPACE"}]}},
        ),
    ),
    Rule(
        name="env-valueFrom-one-source",
        scopes=tuple(f"{path}.env[].valueFrom" for path in CONTAINERS),
        cel="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(set, set).size() == 1",
        holds=_one_source,
        problem="valueFrom needs exactly one source",
        remedy="keep one of secretKeyRef, configMapKeyRef and fieldRef",
        accepts=for_each_container(
            (_variables({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),)
        ),
        rejects=for_each_container(
            (
                _variables({"name": "A", "valueFrom": {}}),
                _variables(
                    {
                        "name": "A",
                        "valueFrom": {
                            "secretKeyRef": {"name": "s", "key": "k"},
                            "configMapKeyRef": {"name": "s", "key": "k"},
                        },
                    }
                ),
            )
        ),
    ),
    Rule(
        name="env-total-size",
        scopes=tuple(f"{path}.env" for path in CONTAINERS),
        cel=f"self.map(variable, size(variable.?value.orValue(''))).sum() <= {_TEXT_LIMIT}",
        holds=lambda env: sum(len(variable.get("value", "")) for variable in env) <= _TEXT_LIMIT,
        problem=f"the variables hold more than {_TEXT_LIMIT} characters",
        remedy="move long values into a ConfigMap and refer to it with valueFrom",
        accepts=for_each_container((_variables({"name": "A", "value": "x" * 4096}),)),
        rejects=for_each_container((_variables(*({"name": f"A{i}", "value": "x" * 4096} for i in range(9))),)),
    ),
    Rule(
        name="arguments-total-size",
        scopes=_ARGUMENT_LISTS,
        cel=f"self.map(argument, size(argument)).sum() <= {_TEXT_LIMIT}",
        holds=lambda arguments: sum(len(argument) for argument in arguments) <= _TEXT_LIMIT,
        problem=f"the arguments hold more than {_TEXT_LIMIT} characters",
        remedy="put long values into a file on a volume (spec.pod.volumes) and pass its path",
        accepts=tuple(fragment(path.removeprefix("spec."), ["--x", "y" * 1000]) for path in _ARGUMENT_LISTS),
        rejects=tuple(
            fragment(path.removeprefix("spec."), [f"--x{i}={'y' * 1000}" for i in range(33)])
            for path in _ARGUMENT_LISTS
        ),
    ),
)
