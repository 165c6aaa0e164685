"""The charts' files: in step with what they are made of, schemas complete. No Helm needed."""

import json
import re

import pytest
import yaml

from qwen_cached_serve import __version__
from qwen_cached_serve.settings import ENV_PREFIX, OperatorSettings
from tools import charts

CHARTS = (charts.OPERATOR, charts.CRDS)


def test_generated_files_are_up_to_date():
    assert charts.differing() == [], "run make charts"


def test_both_charts_have_the_operators_version():
    for chart in CHARTS:
        described = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert described["version"] == described["appVersion"] == __version__
        assert described["kubeVersion"] == ">=1.34.0-0"


def objects(schema, path=""):
    if schema.get("type") == "object" and "properties" in schema:
        yield path, schema
        for name, entry in schema["properties"].items():
            yield from objects(entry, f"{path}.{name}")
    if schema.get("type") == "array":
        yield from objects(schema["items"], f"{path}[]")


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_schema_refuses_unknown_names_and_describes_all(chart):
    schema = json.loads((chart / "values.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    for path, part in objects(schema):
        assert part["additionalProperties"] is False, path
        for name, entry in part["properties"].items():
            assert len(entry.get("description", "")) > 10, f"{path}.{name}"


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_every_value_of_the_schema_has_a_default(chart):
    schema = json.loads((chart / "values.schema.json").read_text())

    def compare(part, values, path):
        for name, entry in part["properties"].items():
            if name == "global" or entry["description"].startswith("Not a value"):
                continue
            assert name in values, f"{path}.{name} has no default in values.yaml"
            if entry.get("type") == "object" and "properties" in entry:
                compare(entry, values[name], f"{path}.{name}")

    compare(schema, yaml.safe_load((chart / "values.yaml").read_text()), "")


def test_every_setting_can_be_reached():
    """Each setting of the operator is a value of the chart, is refused with a reason, or goes through extraEnv."""
    text = (charts.OPERATOR / "templates" / "_checks.tpl").read_text()
    told = set(re.findall(rf'"({ENV_PREFIX}[A-Z_]+)"', text))
    every = {ENV_PREFIX + name.upper() for name in OperatorSettings.__dataclass_fields__}
    assert told <= every, "a setting that does not exist is explained"
    helpers = (charts.OPERATOR / "templates" / "_helpers.tpl").read_text()
    made = set(re.findall(rf'"name" "({ENV_PREFIX}[A-Z_]+)"', helpers))
    assert made <= told, "extraEnv must not name what a value makes"
    assert every - told == {"QCS_BIND_ADDRESS"}


def test_sync_copies_removes_and_names(tmp_path, monkeypatch):
    """On a copy: what is missing, changed or left over is put right, once."""
    crds, operator = tmp_path / "crds", tmp_path / "operator"
    (operator / "files" / "dashboards").mkdir(parents=True)
    (crds / "files").mkdir(parents=True)
    for copy, chart in ((crds, charts.CRDS), (operator, charts.OPERATOR)):
        (copy / "Chart.yaml").write_text((chart / "Chart.yaml").read_text().replace(__version__, "0.0.1"))
    monkeypatch.setattr(charts, "CRDS", crds)
    monkeypatch.setattr(charts, "OPERATOR", operator)
    left = crds / "files" / "gone.yaml"
    left.write_text("")
    changed = charts.sync()
    assert left in changed
    assert not left.exists()
    assert {path.name for path in changed} >= {"Chart.yaml", "operator-rules.yaml", "operators.json"}
    assert yaml.safe_load((operator / "Chart.yaml").read_text())["appVersion"] == __version__
    assert charts.sync() == []
