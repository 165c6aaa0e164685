"""The expressions that panels have in common; labels as monitoring.servedPods and the operator set them."""

from __future__ import annotations

# Of the variables $namespace and $name; the operator's own labels say `name`, those of served pods `qwencachedserve`.
CONDITION = 'namespace=~"$namespace",name=~"$name"'
SERVED = 'namespace=~"$namespace",qwencachedserve=~"$name"'
BY = "sum by (namespace, qwencachedserve)"

RESOURCE = "{{namespace}}/{{name}}"
SERVED_AS = "{{namespace}}/{{qwencachedserve}}"
JOB = 'job=~"$job"'


def conditions(kind: str, status: str) -> str:
    """1 for each resource whose condition has that status."""
    return f'max by (namespace, name) (qwen_cached_serve_condition{{{CONDITION},type="{kind}",status="{status}"}})'


def rate(metric: str, labels: str = SERVED) -> str:
    """Per second, summed over the pods of a resource."""
    return f"{BY} (rate({metric}{{{labels}}}[$__rate_interval]))"


def share(hits: str, queries: str) -> str:
    """One counter of another, both per second; nothing where the second stands still."""
    return f"{rate(hits)} / ({rate(queries)} > 0)"


def mean(metric: str) -> str:
    """Mean of what a histogram took in."""
    return share(f"{metric}_sum", f"{metric}_count")


def quantile(share: float, metric: str) -> str:
    """Quantile over the pods of a resource."""
    inner = f"sum by (namespace, qwencachedserve, le) (rate({metric}_bucket{{{SERVED}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {inner})"


def operator_quantile(share: float, metric: str) -> str:
    """Quantile over all replicas of the operator."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{JOB}}}[$__rate_interval])))"
