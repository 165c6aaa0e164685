"""The table of cross-field rules: the CustomResourceDefinition carries them as CEL, `validate` as Python."""

from __future__ import annotations

from qwen_cached_serve.api.rules import (
    cache,
    engine,
    metadata,
    model,
    operations,
    placement,
    reserved,
    resources,
    tiers,
    variables,
    volumes,
)
from qwen_cached_serve.api.rules.rule import Place, Rule, select

RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (
        model,
        engine,
        cache,
        tiers,
        resources,
        variables,
        reserved,
        metadata,
        placement,
        volumes,
        operations,
    )
    for rule in module.RULES
)

__all__ = ["RULES", "Place", "Rule", "select"]
