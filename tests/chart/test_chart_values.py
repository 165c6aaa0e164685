"""Every value of the charts is one that their templates use, by Helm's own engine."""

import copy
import functools
import operator
from pathlib import Path

import pytest
import yaml

from tests.chart.helm_support import CRDS, OPERATOR, ROOT, of

EVERYTHING = yaml.safe_load((Path(__file__).parent / "everything.yaml").read_text())
WITHOUT_CRDS = {"assumeInstalled": True}
OWN_PODS = {"monitoring": WITHOUT_CRDS | {"podMonitor": {"enabled": True}}}
# Values that everything.yaml leaves at their default, since they exclude others or switch something off: beside what,
# and to what.
OTHERS = {
    "leaderElection.enabled": ({"replicas": 1}, False),
    "podStatus": ({}, False),
    "serviceAccount.create": ({"serviceAccount": {"name": "given"}}, False),
    "rbac.create": ({}, False),
    "rbac.podLogs": ({}, False),
    "podDisruptionBudget.enabled": ({}, False),
    "podSecurityContext.runAsNonRoot": ({}, False),
    "podSecurityContext.runAsUser": ({}, 1),
    "podSecurityContext.runAsGroup": ({}, 1),
    "podSecurityContext.seccompProfile.type": ({}, "Unconfined"),
    "securityContext.allowPrivilegeEscalation": ({}, True),
    "securityContext.readOnlyRootFilesystem": ({}, False),
    "securityContext.capabilities.drop": ({}, ["NET_RAW"]),
    "customCA.configMap": ({}, "corporate"),
    "metricsService.enabled": ({}, False),
    "monitoring.podMonitor.enabled": ({"monitoring": WITHOUT_CRDS}, True),
    "monitoring.podMonitor.interval": (OWN_PODS, "5s"),
    "monitoring.podMonitor.labels": (OWN_PODS, {"release": "prometheus"}),
}


def leaves(values, path=()):
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield ".".join((*path, name)), value


DEFAULTS = dict(leaves(yaml.safe_load((OPERATOR / "values.yaml").read_text())))


def at(values, path):
    return functools.reduce(operator.getitem, path.split("."), values)


def changed(values, path, value=None):
    """A copy with another value, or without one."""
    made = copy.deepcopy(values)
    *above, last = path.split(".")
    inner = made
    for name in above:
        inner = inner.setdefault(name, {})
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return made


def pair(path):
    """Two sets of values that differ in this one only."""
    if path in OTHERS:
        context, value = OTHERS[path]
        return context, changed(context, path, value)
    assert at(EVERYTHING, path) != DEFAULTS[path], f"{path}: everything.yaml has the default; name it in OTHERS"
    return EVERYTHING, changed(EVERYTHING, path)


@pytest.mark.parametrize("path", DEFAULTS)
def test_a_value_changes_what_is_made(helm, path):
    """A refusal counts, too: some values only decide whether others may be."""

    def made(values):
        done = helm.run("template", "r", OPERATOR, *helm.values(values), check=False)
        return done.returncode, done.stdout

    before, after = map(made, pair(path))
    assert before[0] == 0
    assert before != after, f"{path} is a value of the chart and changes nothing"


def test_the_others_are_values():
    assert set(OTHERS) <= set(DEFAULTS)


@pytest.mark.parametrize("change", [{"keep": False}, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}], ids=str)
def test_a_value_of_the_definitions_chart_changes_it(helm, change):
    assert set(change) <= set(yaml.safe_load((CRDS / "values.yaml").read_text()))
    assert helm.template(change, chart=CRDS) != helm.template(chart=CRDS)


def test_values_in_the_examples_are_taken(helm):
    """Argo CD's Applications and Flux' HelmReleases hold values that nothing else reads."""
    documents = [
        document
        for name in ("flux/charts.yaml", "argocd/applications.yaml")
        for document in yaml.safe_load_all((ROOT / "examples" / "gitops" / name).read_text())
    ]
    releases = [one["spec"].get("values") for one in of(documents, "HelmRelease")]
    sources = [one["spec"]["source"] for one in of(documents, "Application")]
    given = [values for values in (*releases, *(s.get("helm", {}).get("valuesObject") for s in sources)) if values]
    assert len(given) == 2
    for values in given:
        assert helm.template(values)
