"""Rules about sizes, quantities and the compute resources of containers."""

from __future__ import annotations

import re

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.base import NAME, SUBDOMAIN
from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import CONTAINERS, for_each_container, is_quantity, is_size
from qwen_cached_serve.api.v1alpha1 import defaults

_MINIMUM_L1 = quantity.format_bytes(defaults.MINIMUM_L1_BYTES)
_EXTENDED = rf"{SUBDOMAIN}/{NAME}"
_BASIC = ("cpu", "memory", "ephemeral-storage")
_SIZE_SCOPES = (
    "spec.cache.l1.size",
    "spec.cache.l2[].filesystem.capacity",
    "spec.cache.l2[].s3.capacity",
    "spec.model.downloadVolume.emptyDir.sizeLimit",
    "spec.pod.volumes[].emptyDir.sizeLimit",
)


_NOT_GPU_CEL = (
    "!name.endsWith('/gpu') && !name.contains('/mig-') && "
    "(!has(self.accelerator) || !has(self.accelerator.gpu) || !has(self.accelerator.gpu.resourceName) || "
    "name != self.accelerator.gpu.resourceName)"
)


def _limit_covers(resources: Node) -> bool:
    limits = resources.get("limits", {})
    requests = {name: amount for name, amount in resources.get("requests", {}).items() if name in _BASIC}
    return all(
        not (is_quantity(amount) and is_quantity(limits[name]))
        or quantity.parse(amount) <= quantity.parse(limits[name])
        for name, amount in requests.items()
        if name in limits
    )


def _limits_named(limits: Node) -> bool:
    return all(
        name in _BASIC
        or name.startswith("hugepages-")
        or (re.fullmatch(_EXTENDED, name) is not None and re.fullmatch("[0-9]+", str(amount)) is not None)
        for name, amount in limits.items()
    )


def _names(resources: Node) -> set[str]:
    return {*resources.get("requests", {}), *resources.get("limits", {})}


def _no_gpu(engine: Node) -> bool:
    chosen = engine.get("accelerator", {}).get("gpu", {}).get("resourceName", defaults.GPU_RESOURCE_NAME)
    return not any(
        name == chosen or name.endswith("/gpu") or "/mig-" in name for name in _names(engine.get("resources", {}))
    )


def _every_resource(requirements: str, condition: str) -> str:
    """Return CEL that holds when `condition` holds for the `name` of every request and limit."""
    kinds = (f"{requirements}.requests", f"{requirements}.limits")
    return " && ".join(f"(!has({kind}) || {kind}.all(name, {condition}))" for kind in kinds)


RULES = (
    Rule(
        name="size",
        scopes=_SIZE_SCOPES,
        cel=(
            f"string(self).matches({quote(quantity.SIZE_PATTERN)}) && "
            "quantity(string(self)).isGreaterThan(quantity('0'))"
        ),
        holds=is_size,
        problem="not a size in bytes",
        remedy="write a positive number with a unit of Kubernetes, such as 100Gi or 500M",
        accepts=(
            *({"cache": {"l1": {"size": size}}} for size in ("100Gi", "1.5Ti", "500M", 107374182400)),
            {"model": {"downloadVolume": {"emptyDir": {"sizeLimit": "80Gi"}}}},
        ),
        rejects=(
            *(
                {"cache": {"l1": {"size": size}}}
                for size in ("100GB", "100 Gi", "-1Gi", "0", "0Gi", "", "lots", "1e9", "5m")
            ),
            *({"cache": {"l1": {"size": size}}} for size in (-5, 0, "100gi", "1,5Gi", "0x10")),
            {"model": {"downloadVolume": {"emptyDir": {"sizeLimit": "80GB"}}}},
            {"pod": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]}},
        ),
    ),
    Rule(
        name="cache.l1.size-minimum",
        scopes=("spec.cache.l1.size",),
        cel=(
            f"!string(self).matches({quote(quantity.SIZE_PATTERN)}) || "
            "!quantity(string(self)).isGreaterThan(quantity('0')) || "
            f"quantity(string(self)).compareTo(quantity('{_MINIMUM_L1}')) >= 0"
        ),
        holds=lambda size: not is_size(size) or quantity.to_bytes(size) >= defaults.MINIMUM_L1_BYTES,
        problem=f"cache.l1.size is below {_MINIMUM_L1}, which is less than one cache entry",
        remedy="write bytes with a unit, such as 100Gi",
        accepts=({"cache": {"l1": {"size": "64Mi"}}}, {"cache": {"l1": {"size": 67108864}}}),
        rejects=(
            {"cache": {"l1": {"size": 100}}},
            {"cache": {"l1": {"size": "100"}}},
            {"cache": {"l1": {"size": "63Mi"}}},
        ),
    ),
    Rule(
        name="quantity",
        scopes=tuple(f"{path}.resources.{kind}{{}}" for path in CONTAINERS for kind in ("requests", "limits")),
        cel=f"string(self).matches({quote(quantity.QUANTITY_PATTERN)})",
        holds=is_quantity,
        problem="not a quantity",
        remedy="write a number that is not negative with a unit of Kubernetes, such as 500m, 2 or 16Gi",
        accepts=for_each_container(
            ({"resources": {"requests": {"cpu": "500m", "memory": "16Gi", "ephemeral-storage": 1024}}},)
        ),
        rejects=for_each_container(
            (
                {"resources": {"requests": {"memory": "16GB"}}},
                {"resources": {"limits": {"cpu": "-1"}}},
                {"resources": {"limits": {"cpu": -1}}},
            )
        ),
    ),
    Rule(
        name="resources-requests-within-limits",
        scopes=tuple(f"{path}.resources" for path in CONTAINERS),
        cel=(
            f"!has(self.requests) || !has(self.limits) || {list(_BASIC)}.all(name, "
            "!(name in self.requests) || !(name in self.limits) || "
            "!isQuantity(string(self.requests[name])) || !isQuantity(string(self.limits[name])) || "
            "quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)"
        ),
        holds=_limit_covers,
        field=".requests",
        problem="a request is higher than the limit of the same resource",
        remedy="raise the limit or lower the request",
        accepts=for_each_container(
            ({"resources": {"requests": {"memory": "32Gi", "cpu": 1}, "limits": {"memory": "32Gi"}}},)
        ),
        rejects=for_each_container(({"resources": {"requests": {"memory": "64Gi"}, "limits": {"memory": "32Gi"}}},)),
    ),
    Rule(
        name="engine.resources-no-gpu",
        scopes=("spec.engine",),
        cel=f"!has(self.resources) || ({_every_resource('self.resources', _NOT_GPU_CEL)})",
        holds=_no_gpu,
        field=".resources",
        problem="engine.resources names a GPU",
        remedy="remove it and set engine.accelerator.gpu.count and resourceName instead",
        accepts=({"engine": {"resources": {"limits": {"rdma/hca": 1}}}},),
        rejects=(
            {"engine": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
            {"engine": {"resources": {"requests": {"nvidia.com/mig-3g.40gb": "1"}}}},
            {
                "engine": {
                    "accelerator": {"gpu": {"resourceName": "gpu.intel.com/xe"}},
                    "resources": {"limits": {"gpu.intel.com/xe": 1}},
                }
            },
        ),
    ),
    Rule(
        name="engine.resources-requests-names",
        scopes=("spec.engine.resources.requests",),
        cel=f"self.all(name, name in {list(_BASIC)})",
        holds=lambda requests: set(requests) <= set(_BASIC),
        problem="requests may name cpu, memory and ephemeral-storage only",
        remedy="move the others to limits: their request always equals the limit",
        accepts=({"engine": {"resources": {"requests": {"cpu": 4, "ephemeral-storage": "1Gi"}}}},),
        rejects=(
            {"engine": {"resources": {"requests": {"rdma/hca": 1}}}},
            {"engine": {"resources": {"requests": {"hugepages-2Mi": "1Gi"}}}},
        ),
    ),
    Rule(
        name="engine.resources-limits-names",
        scopes=("spec.engine.resources.limits",),
        cel=(
            f"self.all(name, name in {list(_BASIC)} || name.startsWith('hugepages-') || "
            f"(name.matches({quote(f'^{_EXTENDED}$')}) && string(self[name]).matches('^[0-9]+$')))"
        ),
        holds=_limits_named,
        problem="limits may name cpu, memory, ephemeral-storage, hugepages and whole numbers of extended resources",
        remedy="write an extended resource with its domain, such as rdma/hca: 1",
        accepts=({"engine": {"resources": {"limits": {"hugepages-2Mi": "1Gi", "rdma/hca": "2", "cpu": 1}}}},),
        rejects=(
            {"engine": {"resources": {"limits": {"gpu": 1}}}},
            {"engine": {"resources": {"limits": {"rdma/hca": "500m"}}}},
            {"engine": {"resources": {"limits": {"Rdma/hca": 1}}}},
        ),
    ),
    Rule(
        name="cache.resources-names",
        scopes=("spec.cache.resources",),
        cel=_every_resource("self", f"name in {list(_BASIC)}"),
        holds=lambda resources: _names(resources) <= set(_BASIC),
        problem="cache.resources may name cpu, memory and ephemeral-storage only",
        remedy="remove the others: the cache server uses the engine's GPU and requests none",
        accepts=({"cache": {"resources": {"requests": {"cpu": 4}}}},),
        rejects=({"cache": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},),
    ),
)
