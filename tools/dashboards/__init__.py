"""
The Grafana dashboards of the operator's chart, made from tables here: what is measured, in one line a panel.

`make charts` writes charts/qwen-cached-serve/files/dashboards/*.json. Every metric and label used is checked against
what the operator, vLLM and LMCache really export (tests/unit/chart/test_chart_metrics.py). Queries keep to the labels
that monitoring.servedPods sets: `namespace`, `qwencachedserve` and Prometheus' own.
"""

from tools.dashboards.cache import CACHE
from tools.dashboards.grafana import rendered
from tools.dashboards.operators import OPERATORS

ALL = {"operators.json": OPERATORS, "cache-effectiveness.json": CACHE}

__all__ = ["ALL", "rendered"]
