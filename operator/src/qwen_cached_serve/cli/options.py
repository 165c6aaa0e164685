"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from qwen_cached_serve.core.defaults import OperatorDefaults


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="table (for people) or json")]
EngineImage = Annotated[
    str, typer.Option("--engine-image", envvar="QCS_ENGINE_IMAGE", help="the operator's image for GPU resources")
]
EngineCpuImage = Annotated[
    str,
    typer.Option("--engine-cpu-image", envvar="QCS_ENGINE_CPU_IMAGE", help="the operator's image for CPU resources"),
]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="namespace")]
Kubeconfig = Annotated[str, typer.Option(help="kubeconfig file; KUBECONFIG or ~/.kube/config when not given")]
Context = Annotated[str, typer.Option(help="context of the kubeconfig")]


def operator_defaults(engine_image: str, engine_cpu_image: str) -> OperatorDefaults:
    """Return the operator's settings with the images that the user named."""
    from qwen_cached_serve.core.defaults import OperatorDefaults

    own = OperatorDefaults()
    return OperatorDefaults(engine_image or own.engine_image, engine_cpu_image or own.engine_cpu_image)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return rows of equally many cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def print_lines(lines: Iterable[str]) -> None:
    """Print a line each."""
    for line in lines:
        print(line)


def print_json(items: list[Any], *, always_list: bool = False) -> None:
    """Print one item as an object, several as a list; what is a list by nature stays one."""
    print(json.dumps(items[0] if len(items) == 1 and not always_list else items, indent=2, ensure_ascii=False))
