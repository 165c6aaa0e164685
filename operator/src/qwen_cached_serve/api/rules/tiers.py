"""Rules about the tiers behind main memory."""

from __future__ import annotations

from collections.abc import Callable

from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.inpod.namespaces import PLACEHOLDER

_SCOPE = "spec.cache.l2[]"
_BLOCKS = {"Filesystem": "filesystem", "Valkey": "valkey", "S3": "s3", "Resp": "resp"}
_IDENTITY = "v1-" + "0123456789" * 4
_HOST = f"{PLACEHOLDER}.s3.example"
_EXAMPLES: dict[str, dict[str, Node]] = {
    "Filesystem": {"claimName": "c", "path": "kv", "capacity": "500Gi"},
    "Valkey": {"endpoint": "valkey.example:6379", "tls": "Enabled"},
    "S3": {"endpoint": _HOST, "region": "eu-central-1", "capacity": "500Gi"},
    "Resp": {"endpoint": "redis.example:6379", "dedicatedTo": _IDENTITY},
}


def _tiers(*tiers: dict[str, Node]) -> dict[str, Node]:
    return {"cache": {"l2": [{"name": f"t{number}", **tier} for number, tier in enumerate(tiers)]}}


def _tier(kind: str, **changed: Node) -> dict[str, Node]:
    block = {name: value for name, value in {**_EXAMPLES[kind], **changed}.items() if value is not None}
    return _tiers({"type": kind, _BLOCKS[kind]: block})


def _own_block_only(kind: str) -> Callable[[Node], bool]:
    block = _BLOCKS[kind]
    return lambda tier: tier["type"] != kind or set(_BLOCKS.values()) & tier.keys() == {block}


def _block_rule(kind: str) -> Rule:
    block, others = _BLOCKS[kind], [block for name, block in _BLOCKS.items() if name != kind]
    needed = next(iter(_EXAMPLES[kind]))
    other = next(name for name in _BLOCKS if name != kind)
    without = " && ".join(f"!has(self.{one})" for one in others)
    return Rule(
        name=f"cache.l2-{block}-block",
        scopes=(_SCOPE,),
        cel=f"self.type != {quote(kind)} || (has(self.{block}) && {without})",
        holds=_own_block_only(kind),
        problem=f"a tier of type {kind} needs the block {block}, and no other",
        remedy=f"add {block}.{needed}, and remove the blocks of other types",
        accepts=(_tier(kind),),
        rejects=(
            _tiers({"type": kind}),
            _tiers({"type": kind, block: _EXAMPLES[kind], _BLOCKS[other]: _EXAMPLES[other]}),
        ),
    )


def _separable(s3: Node) -> bool:
    return bool(s3["endpoint"].count(PLACEHOLDER) == (0 if "dedicatedTo" in s3 else 1))


def _braces_closed(s3: Node) -> bool:
    rest = s3["endpoint"].replace(PLACEHOLDER, "")
    return "{" not in rest and "}" not in rest


_PLACEHOLDER = quote(PLACEHOLDER)
_TWICE = f"self.endpoint.split({_PLACEHOLDER}).size()"

RULES = (
    *(_block_rule(kind) for kind in _BLOCKS),
    Rule(
        name="cache.l2-s3-separable",
        scopes=(f"{_SCOPE}.s3",),
        cel=f"{_TWICE} == (has(self.dedicatedTo) ? 1 : 2)",
        holds=_separable,
        field=".endpoint",
        problem="cache.l2: a bucket holds the entries of one identity: either the endpoint holds "
        f"{PLACEHOLDER} once, or dedicatedTo names that identity",
        remedy=f"write it as in {_HOST}, or set s3.dedicatedTo",
        accepts=(_tier("S3"), _tier("S3", endpoint="kv.s3.example", dedicatedTo=_IDENTITY)),
        rejects=(
            _tier("S3", endpoint="kv.s3.example"),
            _tier("S3", dedicatedTo=_IDENTITY),
            _tier("S3", endpoint=f"{PLACEHOLDER}.{_HOST}"),
        ),
    ),
    Rule(
        name="cache.l2-s3-placeholder",
        scopes=(f"{_SCOPE}.s3",),
        cel=f"!self.endpoint.replace({_PLACEHOLDER}, '').contains('{{') && "
        f"!self.endpoint.replace({_PLACEHOLDER}, '').contains('}}')",
        holds=_braces_closed,
        field=".endpoint",
        problem=f"cache.l2: the endpoint of a bucket knows the placeholder {PLACEHOLDER} and no other",
        remedy=f"write it as in {_HOST}",
        accepts=(_tier("S3", endpoint=f"{PLACEHOLDER}.minio.llm.svc:9000"),),
        rejects=(
            _tier("S3", endpoint="{name}.{namespace}.s3.example"),
            _tier("S3", endpoint="{namespace}}.s3.example"),
        ),
    ),
    *(
        Rule(
            name=f"cache.l2-{block}-user-has-password",
            scopes=(f"{_SCOPE}.{block}",),
            cel="!has(self.username) || has(self.passwordSecretKeyRef)",
            holds=lambda store: "username" not in store or "passwordSecretKeyRef" in store,
            field=".username",
            problem=f"cache.l2: {block}.username without a password",
            remedy=f"add {block}.passwordSecretKeyRef, or remove the username",
            accepts=(_tier(kind, username="kv", passwordSecretKeyRef={"name": "s", "key": "password"}),),
            rejects=(_tier(kind, username="kv"),),
        )
        for kind, block in (("Valkey", "valkey"), ("Resp", "resp"))
    ),
)
