"""Rules about arguments and variables that the operator derives; tables and expressions are `inpod.flags`' own.

One regular expression a table would exceed what the API server lets one rule cost, so a table becomes several rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import fragment
from qwen_cached_serve.inpod.flags import (
    RESERVED_CACHE_SERVER_FLAGS,
    RESERVED_ENGINE_FLAGS,
    RESERVED_ENV,
    check_env,
    check_extra_args,
    reserved_env_pattern,
    reserved_pattern,
)
from qwen_cached_serve.inpod.reserved import FIRST_ITEM_PATTERN, FlagTable, ReservedFlag, ReservedVariable

_PATTERN_LIMIT = 1300
"""Characters of one expression. The API server estimates (4 x maxLength / 10) x (characters / 4) x maxItems for it and
allows 10 million: 64 arguments of 1,024 characters leave 1,500."""


def _argument_rules(path: str, table: FlagTable) -> Iterator[Rule]:
    where = path.removeprefix("spec.")
    yield Rule(
        name=f"{where}-first-is-flag",
        scopes=(path,),
        cel=f"self.size() == 0 || self[0].matches({quote(FIRST_ITEM_PATTERN)})",
        holds=lambda arguments: not arguments or re.search(FIRST_ITEM_PATTERN, arguments[0]) is not None,
        problem=f"{where} begins with a word that is not a flag, which would be taken for a second model",
        remedy="remove it, or write the flag that it belongs to before it",
        accepts=(_args(where, "--seed", "1"), _args(where)),
        rejects=(_args(where, "Qwen/Qwen3.6-27B"), _args(where, "1", "--seed")),
    )
    for number, part in enumerate(parts(table), start=1):
        yield Rule(
            name=f"{where}-reserved-{number}",
            scopes=(f"{path}[]",),
            cel=f"!self.matches({quote(reserved_pattern(part))})",
            holds=_free_of(part),
            problem=f"the operator derives this argument of {table.program}, or it is the beginning of such a one",
            remedy="remove it, or write in full the flag that you mean",
            message_cel=_lookup("self.split('=')[0].split('.')[0].replace('_', '-')", _messages(part)),
            explain=_explainer(table),
            accepts=tuple(_args(where, *arguments) for arguments in _HARMLESS),
            rejects=tuple(_args(where, "--seed=1", item) for flag in part.flags for item in _spellings(flag)),
        )


def parts(table: FlagTable) -> Iterator[FlagTable]:
    """Yield tables of which each has an expression that the API server takes, together the whole table."""
    flags: list[ReservedFlag] = []
    for flag in table.flags:
        grown = FlagTable(table.program, (*flags, flag), table.allowed)
        if flags and len(reserved_pattern(grown)) > _PATTERN_LIMIT:
            yield FlagTable(table.program, tuple(flags), table.allowed)
            flags = []
        flags.append(flag)
    yield FlagTable(table.program, tuple(flags), table.allowed)


def _free_of(table: FlagTable) -> Callable[[Node], bool]:
    pattern = re.compile(reserved_pattern(table))
    return lambda argument: pattern.search(argument) is None


def _explainer(table: FlagTable) -> Callable[[Node], tuple[str, str]]:
    def explain(argument: Node) -> tuple[str, str]:
        # not at the first place, where another rule applies as well
        found = next(problem for problem in check_extra_args(["-", argument], table) if problem.index == 1)
        return _halves(found.message)

    return explain


def _halves(message: str) -> tuple[str, str]:
    """Split a message of `inpod.reserved`, `what is wrong. What to do.`, into the two halves of this package's form."""
    problem, _, remedy = message.removesuffix(".").rpartition(". ")
    return problem, remedy[0].lower() + remedy[1:]


def _joined(name: str, entry: ReservedFlag | ReservedVariable) -> str:
    return "; ".join(_halves(f"{name} is refused: {entry.reason}. {entry.remedy}"))


def _messages(table: FlagTable) -> dict[str, str]:
    return {spelling: _joined(spelling, flag) for flag in table.flags for spelling in flag.spellings()}


def _lookup(key: str, messages: dict[str, str]) -> str:
    entries = ", ".join(f"{quote(name)}: {quote(message)}" for name, message in messages.items())
    return f"{{{entries}}}[{key}]"


_HARMLESS = (
    ("--seed", "1"),
    ("--Max-Num-Batched-Tokens", "1"),
    ("--chat-template", "a=--b"),
    ("--seed", "max-model-len"),
)


def _spellings(flag: ReservedFlag) -> Iterator[str]:
    yield flag.name
    if flag.name.startswith("--"):
        yield f"{flag.name.replace('-', '_').replace('__', '--', 1)}=1"
        yield f"{flag.name}.a=1"
        yield flag.name[:-1]
    yield from flag.aliases
    if flag.negatable:
        yield f"--no_{flag.name[2:]}"


def _args(where: str, *arguments: str) -> dict[str, Any]:
    return fragment(where, list(arguments))


_ENV_SCOPES = ("spec.engine.env[]", "spec.cache.env[]")
_BY_VALUE = tuple(variable for variable in RESERVED_ENV if variable.value_pattern)
_BY_NAME = tuple(variable for variable in RESERVED_ENV if not variable.value_pattern)


_BY_PREFIX_CEL = "".join(
    f"self.name.startsWith({quote(v.name)}) ? {quote(_joined(f'{v.name}…', v))} : " for v in _BY_NAME if v.prefix
)


def _env(*variables: tuple[str, str]) -> tuple[dict[str, Any], ...]:
    items = [{"name": name, "value": value} for name, value in variables]
    return tuple({path: {"env": items}} for path in ("engine", "cache"))


def _name_is_free(variable: Node) -> bool:
    return re.search(reserved_env_pattern(RESERVED_ENV), variable["name"]) is None


def _explain_variable(variable: Node) -> tuple[str, str]:
    return _halves(check_env([(variable["name"], variable.get("value"))], RESERVED_ENV)[0].message)


def _value_rule(variable: ReservedVariable) -> Rule:
    name, pattern = variable.name, variable.value_pattern
    return Rule(
        name=f"env-{name}-value",
        scopes=_ENV_SCOPES,
        cel=f"self.name != {quote(name)} || !has(self.value) || !self.value.matches({quote(pattern)})",
        holds=lambda item: item["name"] != name or re.search(pattern, item.get("value", "")) is None,
        field=".value",
        problem=_halves(f"{name} is refused: {variable.reason}. {variable.remedy}")[0],
        remedy=_halves(variable.remedy)[1],
        accepts=_env((name, "max_split_size_mb:512")),
        rejects=_env((name, "max_split_size_mb:512,expandable_segments:True")),
    )


RULES = (
    *_argument_rules("spec.engine.extraArgs", RESERVED_ENGINE_FLAGS),
    *_argument_rules("spec.cache.extraArgs", RESERVED_CACHE_SERVER_FLAGS),
    Rule(
        name="env-reserved",
        scopes=_ENV_SCOPES,
        cel=f"!self.name.matches({quote(reserved_env_pattern(RESERVED_ENV))})",
        holds=_name_is_free,
        field=".name",
        problem="the operator sets this variable, or it would change what the operator derives",
        remedy="remove it",
        message_cel=_BY_PREFIX_CEL
        + _lookup("self.name", {v.name: _joined(v.name, v) for v in _BY_NAME if not v.prefix}),
        explain=_explain_variable,
        accepts=(
            *_env(("VLLM_LOGGING_LEVEL", "DEBUG"), ("HOMER", "1")),
            *_env(*((name, "1") for v in _BY_NAME for name in v.allowed)),
        ),
        rejects=tuple(example for v in _BY_NAME for example in _env((f"{v.name}X" if v.prefix else v.name, "1"))),
    ),
    *(_value_rule(variable) for variable in _BY_VALUE),
)
