"""A dashboard as a table of panels, and as the JSON that Grafana imports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GRAFANA_SCHEMA_VERSION = 39
_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; units are Grafana's names."""

    title: str
    queries: Sequence[Query]
    help: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels under it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One file."""

    uid: str
    title: str
    variables: Sequence[tuple[str, str]]
    """(name, query of its values)"""
    rows: Sequence[Row]


def rendered(dashboard: Dashboard) -> str:
    """The dashboard as Grafana imports it; equal tables give equal bytes."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in dashboard.rows:
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "gridPos": place, "panels": []})
        left, top, height = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top, height = 0, top + height, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append(_panel(panel, len(panels) + 1, place))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    document = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["qwen-cached-serve"],
        "schemaVersion": GRAFANA_SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(*variable) for variable in dashboard.variables)]},
        "panels": panels,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    made: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "gridPos": place,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [_target(query, index, panel.kind) for index, query in enumerate(panel.queries)],
    }
    if panel.kind == "table":
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
    return made


def _target(query: Query, index: int, kind: str) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": query.instant,
        "range": not query.instant,
        "format": "table" if kind == "table" else "time_series",
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "sort": 1,
    }
