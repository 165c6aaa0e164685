"""Values have the same names in templates, values.yaml, values.schema.json and docs/. No Helm needed."""

import json
import re

import pytest
import yaml

from qwen_cached_serve.settings import ENV_PREFIX, OperatorSettings
from tools import charts

DOCUMENTS = sorted([charts.ROOT / "README.md", *(charts.ROOT / "docs").glob("*.md")])
INSTALL = (charts.ROOT / "docs" / "install.md").read_text()
CHECKS = (charts.OPERATOR / "templates" / "_checks.tpl").read_text()


def values(chart):
    return yaml.safe_load((chart / "values.yaml").read_text())


def is_value(chart, path):
    part = json.loads((chart / "values.schema.json").read_text())
    for name in path.split("."):
        if "properties" not in part:
            return part.get("type") == "object" or "allOf" in part
        part = part["properties"].get(name)
        if part is None or part.get("description", "").startswith("Not a value"):
            return False
    return True


def section(begin, end):
    return INSTALL.partition(f"{begin}\n")[2].partition(f"\n{end}")[0]


@pytest.mark.parametrize("chart", [charts.OPERATOR, charts.CRDS], ids=lambda path: path.name)
def test_templates_name_values_that_there_are(chart):
    named = {
        found
        for path in (chart / "templates").iterdir()
        for found in re.findall(r"\.Values((?:\.\w+)+)", path.read_text())
    }
    assert named
    for path in named:
        inner = values(chart)
        for name in path.strip(".").split("."):
            assert name in inner, f"{chart.name}: a template uses {path}, which values.yaml does not have"
            inner = inner[name]


def test_the_documentation_names_every_value():
    table = set(re.findall(r"`([\w.]+)", section("## Install with Helm", "## Install with kustomize")))
    told = {name.partition(".")[0] for name in table}
    assert set(values(charts.OPERATOR)) <= told
    assert set(values(charts.CRDS)) <= told


def test_the_documentation_names_no_other_value():
    rows = re.findall(r"^\| (`.+?) \|", section("What they cover:", "The chart of the definition"), re.MULTILINE)
    assert len(rows) > 10
    for row in rows:
        before = ""
        for name in re.findall(r"`(\.?[\w.]+)", row):
            path = before + name if name.startswith(".") else name
            before = path.partition(".")[0]
            assert is_value(charts.OPERATOR, path), path


def test_every_option_in_a_command_is_a_value():
    given = {name for path in DOCUMENTS for name in re.findall(r"--set[ =]([\w.]+)=", path.read_text())}
    assert len(given) > 2
    for name in given:
        assert is_value(charts.OPERATOR, name), name
    assert not is_value(charts.OPERATOR, "image.name")
    assert not is_value(charts.OPERATOR, "replicaCount")


def test_the_settings_say_which_value_sets_them():
    """As the chart itself tells somebody who sets the variable in extraEnv."""
    row = r"^\| `--[\w-]+` \| `(QCS_\w+)` \| (?:`([\w.]+)`|fixed) \|"
    told = dict(re.findall(row, INSTALL, re.MULTILINE))
    instead = dict(re.findall(rf'^  "({ENV_PREFIX}\w+)" "([\w.]+)"$', CHECKS, re.MULTILINE))
    assert set(told) == {ENV_PREFIX + name.upper() for name in OperatorSettings.__dataclass_fields__}
    assert {name: value for name, value in told.items() if value and value != "extraEnv"} == instead
