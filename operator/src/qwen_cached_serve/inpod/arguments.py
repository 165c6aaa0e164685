"""Arguments in one spelling: the same settings give the same map, however and in whatever order they were written.

The rules are those of vLLM 0.32's `FlexibleArgumentParser` on top of argparse: underscores for dashes, `--a=b` or
`--a b`, `--no-a`, unambiguous beginnings, short names, JSON in any layout, dotted keys (`--a.key value`, `--a.key+
value`), `-O3`. What cannot be told apart safely stays as it was written: that makes two identities of one, never one
of two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .neutral import ProgramFlags
from .profiles import parse_version

_NUMBER = re.compile(r"-(\d|\.\d).*")
"""What begins like a negative number is a value, for argparse too."""
_POSITIONAL = "(positional)"
TRUE, FALSE = "true", "false"


def canonical(arguments: Sequence[str], flags: ProgramFlags, version: str) -> dict[str, str]:
    """Map every flag to its value as text; a switch is `true` or `false`.

    `version` is the program's own: abbreviations are resolved only where its parser was reviewed, since a newer one may
    have a flag of exactly that name.
    """
    reviewed = _reviewed(version, flags.read_from)
    plain: dict[str, list[Any]] = {}
    dotted: dict[str, Any] = {}
    for written, values in _split(arguments, flags):
        name, *keys = written.split(".") if "." in written else (written,)
        name = _name(name, flags, expand=reviewed)
        if keys:
            _merge(dotted.setdefault(name, {}), _nested(keys, values))
            continue
        if not values and name.startswith("--no-") and (not flags.known(name) or f"--{name[5:]}" in flags.negatable):
            plain.setdefault(f"--{name[5:]}", []).append(FALSE)
        else:
            plain.setdefault(name, []).append([_value(value) for value in values])
    # vLLM appends what dotted keys add up to behind everything else.
    for name, value in dotted.items():
        plain.setdefault(name, []).append([_text(value)])
    return {name: _joined(given, last=flags.known(name) and name not in flags.repeatable) for name, given in
            sorted(plain.items())}  # fmt: skip


def without(arguments: Sequence[str], name: str, flags: ProgramFlags) -> list[str]:
    """Leave out a flag of one value, in every spelling, dotted keys included; the rest stays as it is.

    Dotted keys cannot be overruled: vLLM appends what they add up to behind everything that was written.
    """
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*kept, argument, *rest]
        written, equals, _ = argument.partition("=")
        if not argument.startswith("--") or _name(written.partition(".")[0], flags, expand=True) != name:
            kept.append(argument)
        elif not equals:
            next(rest, None)
    return kept


def _reviewed(version: str, read_from: str) -> bool:
    ours, theirs = parse_version(read_from), parse_version(version)
    return ours is not None and theirs is not None and theirs.release <= ours.release


def _split(arguments: Sequence[str], flags: ProgramFlags) -> Iterable[tuple[str, list[str]]]:
    """Pairs of a flag as written and the values that follow it."""
    name, found = _POSITIONAL, False
    values: list[str] = []
    for index, argument in enumerate(arguments):
        if argument == "--":
            values += arguments[index + 1 :]
            break
        if not argument.startswith("-") or argument == "-" or _NUMBER.fullmatch(argument):
            values.append(argument)
            found = True
            continue
        if name != _POSITIONAL or found:
            yield name, values
        name, values = _flag(argument, flags)
    if name != _POSITIONAL or found:
        yield name, values


def _flag(argument: str, flags: ProgramFlags) -> tuple[str, list[str]]:
    if argument.startswith("-O") and argument != "-O":
        # `-O3` and `-O=3`; what is neither is vLLM's own business and stays one word.
        return "-O", [argument[3:] if argument[2] == "=" else argument[2:]]
    name, equals, value = argument.partition("=")
    if argument[1] != "-" and name.partition(".")[0] not in flags.aliases and argument[:2] in flags.aliases:
        return argument[:2], [argument[2:]]  # a one-letter name takes what follows it
    return name, [value] if equals else []


def _name(written: str, flags: ProgramFlags, *, expand: bool) -> str:
    name = written.replace("_", "-") if written.startswith("--") else written
    return flags.expand(name) if expand else flags.aliases.get(name, name)


def _value(text: str) -> str:
    if text[:1] in ("{", "["):
        try:
            return _text(json.loads(text))
        except (ValueError, RecursionError):
            return text
    return text


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _nested(keys: list[str], values: list[str]) -> dict[str, Any]:
    text = values[0] if values else ""
    last = keys[-1]
    value: Any = text.split(",") if last.endswith("+") else _json(text)
    for key in reversed([*keys[:-1], last.removesuffix("+")]):
        value = {key: value}
    return {str(key): entry for key, entry in value.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            into[key] = known + value
        else:
            into[key] = value


def _joined(given: list[Any], *, last: bool) -> str:
    """One text of all that was given for a flag, in its order: it decides which one wins."""
    kept = given[-1:] if last else given
    texts = [one if isinstance(one, str) else TRUE if not one else one[0] if len(one) == 1 else _text(one)
             for one in kept]  # fmt: skip
    return texts[0] if len(texts) == 1 else _text(texts)
