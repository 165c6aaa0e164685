"""Rules about the cache server."""

from __future__ import annotations

from fractions import Fraction

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import is_quantity, is_size
from qwen_cached_serve.api.v1alpha1 import defaults

_OVERHEAD = quantity.format_bytes(defaults.CACHE_SERVER_OVERHEAD_BYTES)
_NEEDED_CEL = f"quantity(string(self.l1.size)).add(quantity({quote(_OVERHEAD)}))"
_L1_PROBLEM = "cache.resources.limits.memory is below what the cache server needs"
_L1_REMEDY = "raise the limit, lower cache.l1.size, or remove the limit to have it derived"
_L1_FIGURE = f"{_L1_PROBLEM}: %dMi (L1 plus {_OVERHEAD})"
_LIMIT_CEL = "string(self.resources.limits['memory'])"


def _needed_memory(l1_size: int | str) -> Fraction:
    return quantity.parse(l1_size) + defaults.CACHE_SERVER_OVERHEAD_BYTES


def _has_l1(spec: Node) -> bool:
    cache = spec.get("cache", {})
    return cache.get("mode") == "Disabled" or "size" in cache.get("l1", {})


def _memory_limit(cache: Node) -> int | str | None:
    limit: int | str | None = cache.get("resources", {}).get("limits", {}).get("memory")
    return limit if limit is not None and is_quantity(limit) else None


def _l1_fits(cache: Node) -> bool:
    size, limit = cache.get("l1", {}).get("size"), _memory_limit(cache)
    return size is None or limit is None or not is_size(size) or quantity.parse(limit) >= _needed_memory(size)


def _explain_l1(cache: Node) -> tuple[str, str]:
    needed = -(-_needed_memory(cache["l1"]["size"]) // 2**20)
    return _L1_FIGURE.replace("%d", str(needed)), _L1_REMEDY


def _limited(size: int | str, limit: int | str) -> dict[str, Node]:
    return {"cache": {"l1": {"size": size}, "resources": {"limits": {"memory": limit}}}}


RULES = (
    Rule(
        name="cache.l1.size-required",
        scopes=("spec",),
        cel="self.?cache.?mode.orValue('Enabled') == 'Disabled' || self.?cache.?l1.?size.hasValue()",
        holds=_has_l1,
        field=".cache",
        problem="cache.l1.size is required while the cache is on",
        remedy="set cache.l1.size, for example 100Gi, or cache.mode: Disabled",
        accepts=({"cache": {"l1": {"size": "100Gi"}}}, {"cache": {"mode": "Disabled", "l1": None}}),
        rejects=({"cache": {"l1": None}}, {"cache": {"l1": {"size": None}}}, {"cache": None}),
    ),
    Rule(
        name="cache.resources-limit-covers-l1",
        scopes=("spec.cache",),
        cel=(
            "!self.?l1.?size.hasValue() || !self.?resources.?limits[?'memory'].hasValue() || "
            f"!isQuantity(string(self.l1.size)) || !isQuantity({_LIMIT_CEL}) || "
            f"quantity({_LIMIT_CEL}).compareTo({_NEEDED_CEL}) >= 0"
        ),
        holds=_l1_fits,
        field=".resources.limits",
        problem=f"{_L1_PROBLEM}: L1 plus {_OVERHEAD}",
        remedy=_L1_REMEDY,
        message_cel=f"{quote(f'{_L1_FIGURE}; {_L1_REMEDY}')}.format([({_NEEDED_CEL}.asInteger() + 1048575) / 1048576])",
        explain=_explain_l1,
        accepts=(_limited("64Gi", "66Gi"), _limited("1Gi", 3221225472), _limited("1.5Gi", "3.5Gi")),
        rejects=(_limited("64Gi", "64Gi"), _limited("60Gi", "60G"), _limited("64Gi", "65.9Gi"), _limited("1Gi", 1)),
    ),
)
