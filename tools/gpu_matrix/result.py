"""The checked-in result: docs/gpu-matrix.json, one row a line, so that a changed answer is a changed line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tools.gpu_matrix.cells import COLUMN_OF_FIELD, GENERATIONS, RELEASES, Cell

ROOT = Path(__file__).resolve().parent.parent.parent
JSON_FILE = ROOT / "docs" / "gpu-matrix.json"
TABLE_FILE = ROOT / "docs" / "gpu-matrix.md"
COMMAND = "make gpu-matrix"

ANSWERS = (
    "source",
    "blockSize",
    "kernelBlockSize",
    "attentionBackend",
    "gdnPrefill",
    "paddingBytes",
    "refused",
    "reason",
)
"""`source` is `vllm` (numbers, or `refused` in vLLM's words) or `notRun` (with the `reason`)."""
COLUMNS = (*COLUMN_OF_FIELD.values(), *ANSWERS)

Row = dict[str, Any]


def not_run(cell: Cell, reason: str) -> Row:
    """Return the row of a question that could not be put: it never counts as a match."""
    return cell.row() | {"source": "notRun", "reason": reason}


def write_json(rows: Iterable[Row]) -> None:
    """Write docs/gpu-matrix.json: header, then every row as an array in the order of `columns`."""
    head = {
        "command": COMMAND,
        "versions": list(RELEASES),
        "generations": {gpu.name: gpu.product for gpu in GENERATIONS},
        "columns": list(COLUMNS),
    }
    lines = [json.dumps([row.get(column) for column in COLUMNS], separators=(",", ":")) for row in rows]
    body = ",\n".join(lines)
    JSON_FILE.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n{body}\n]}}\n', encoding="utf-8")


def read_json() -> list[Row]:
    """Read the rows of docs/gpu-matrix.json as dicts by column."""
    loaded = json.loads(JSON_FILE.read_text(encoding="utf-8"))
    columns: Sequence[str] = loaded["columns"]
    return [dict(zip(columns, values, strict=True)) for values in loaded["rows"]]
