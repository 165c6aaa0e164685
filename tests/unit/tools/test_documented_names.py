"""What README.md, CONTRIBUTING.md, docs/ and examples/ name is there: commands, options, defaults, fields, reasons,
events, metrics, alerts, variables, make targets, modules, links.

Names only: whether a sentence is true is for people, but a thing that was renamed or dropped cannot stay in one, and
what users meet in a status or on a dashboard has to be told somewhere.
"""

import ast
import dataclasses
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest
import typer
import yaml

from qwen_cached_serve import settings
from qwen_cached_serve.api.crd import build_crd
from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.cli.main import app
from qwen_cached_serve.core import conditions, events, failures, podstate
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod.refusal import CODES
from qwen_cached_serve.observe.metrics import Metrics, QueueMetrics, UnfinishedWork
from tests.unit.chart.test_chart_metrics import FILES, FIXTURES, RECORDED, alert_rules

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "operator" / "src" / "qwen_cached_serve"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
]
TEXTS = [
    *DOCUMENTS,
    *sorted((ROOT / "examples").rglob("*.yaml")),
    *sorted((ROOT / "charts").glob("*/values.yaml")),
    *sorted((ROOT / "charts").glob("*/templates/NOTES.txt")),
]
INSTALL = (ROOT / "docs" / "install.md").read_text()
RESOURCE = (ROOT / "docs" / "resource.md").read_text()
REVISIONS = (ROOT / "docs" / "revisions.md").read_text()


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.relative_to(ROOT).as_posix())


def code(path):
    """The lines of fenced blocks, and what stands between backticks; comments and prompts left out."""
    parts = re.split(r"^```.*$", path.read_text(), flags=re.MULTILINE)
    for number, part in enumerate(parts):
        if number % 2:
            yield from (re.sub(r"\s+#\s.*$", "", line.removeprefix("$ ")) for line in part.splitlines())
        else:
            yield from re.findall(r"`([^`\n]+)`", part)


def section(text, begin):
    """What stands below a heading, up to the next one."""
    return text.partition(f"\n## {begin}\n")[2].partition("\n## ")[0]


# -- commands ----------------------------------------------------------------------------------------------------------


def invocations(path):
    """The words behind `qcs` of every call in the code of a document."""
    for piece in code(path):
        for call in re.findall(r"(?:^|\| )(?:kubectl )?qcs ([a-z][^|]*)", piece):
            words = [word.strip("[]") for word in call.split()]
            if not words[0].endswith(":"):  # a line of a log begins so
                yield words


def find(words):
    """The command that the words call, and the words that are left."""
    command = typer.main.get_command(app)
    left = list(words)
    while hasattr(command, "commands") and left:
        assert left[0] in command.commands, f"qcs {' '.join(words)}: there is no {left[0]}"
        command = command.commands[left.pop(0)]
    return command, left


@named(DOCUMENTS)
def test_every_call_of_qcs_is_one_that_there_is(path):
    for words in invocations(path):
        command, left = find(words)
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for option in (word.partition("=")[0] for word in left if re.match(r"--?[a-z]", word, re.IGNORECASE)):
            assert option in known | {"--help"}, f"qcs {' '.join(words)}: there is no {option}"


def test_every_command_is_told():
    told = {words[0] for path in DOCUMENTS for words in invocations(path)}
    assert set(typer.main.get_command(app).commands) == told


def test_a_call_that_does_not_exist_is_noticed(tmp_path):
    for call in ("qcs plan --gpus H100", "qcs describe x", "kubectl logs x | qcs explain --kind engine"):
        document = tmp_path / "x.md"
        document.write_text(f"```sh\n{call}\n```\n")
        with pytest.raises(AssertionError):
            test_every_call_of_qcs_is_one_that_there_is(document)


@named(DOCUMENTS)
def test_every_make_target_and_module_exists(path):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for piece in code(path):
        assert set(re.findall(r"(?:^|&& )make ([a-z][a-z-]*)", piece)) <= targets, piece
        for module in re.findall(r"\bpython3? -m ([a-z_][\w.]*)", piece):
            assert importlib.util.find_spec(module), piece


def test_the_release_of_go_is_the_newest_that_a_module_asks_for():
    files = (ROOT / "localkube" / "modules").glob("*/go.mod")
    asked = [re.search(r"^go (\S+)$", file.read_text(), re.MULTILINE)[1] for file in files]
    newest = max(asked, key=lambda release: [int(part) for part in release.split(".")])
    assert f"Go {newest} or newer" in (ROOT / "README.md").read_text()


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_defaults_of_the_operators_flags():
    rows = re.findall(r"^\| `--([\w-]+)` \|[^|]+\|[^|]+\| ([^|]+) \|", section(INSTALL, "Settings"), re.MULTILINE)
    told = dict(rows)
    defaults = settings.load([], {})
    assert {name.replace("-", "_") for name in told} == {field.name for field in dataclasses.fields(defaults)}
    for name, words in told.items():
        value = getattr(defaults, name.replace("-", "_"))
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        # An empty one is told in words.
        assert words.strip("`") == (text.lower() if isinstance(value, bool) else text) if text else "`" not in words, (
            name
        )


@named(TEXTS)
def test_every_variable_is_read_by_somebody(path):
    for name in re.findall(r"\bQCS_[A-Z_]*[A-Z]\b", path.read_text()):
        assert (
            name.removeprefix("QCS_").lower() in settings.OperatorSettings.__dataclass_fields__ or name in programs()
        ), name


@cache
def programs():
    """All code of the repository but tests."""
    folders = ("operator/src", "demo", "tools", "images", "localkube", "charts")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".tpl"})
    return "\n".join(path.read_text() for path in files)


# -- fields ------------------------------------------------------------------------------------------------------------

OF_OTHERS = ("status.containerStatuses", "status.initContainerStatuses", "spec.nodeName", "spec.FIELD")


def exists(path):
    node = build_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path.split("."):
        if node.get("additionalProperties") or node.get("x-kubernetes-preserve-unknown-fields"):
            return True
        node = node.get("items", node).get("properties", {}).get(part)
        if node is None:
            return False
    return True


@named(TEXTS)
def test_every_field_exists(path):
    fields = re.findall(r"(?<![\w.])(?:spec|status)\.[a-zA-Z][\w.\[\]]*\w", path.read_text())
    for field in (re.sub(r"\[\w*\]?", "", field) for field in fields if not field.startswith(OF_OTHERS)):
        # Modules of core/ in CONTRIBUTING.md.
        assert exists(field) or field in {"status.py", "status.judge"}, field


def fragments():
    """The pieces of specs in docs/resource.md and docs/compatibility.md, each below the keys that it begins with."""
    for document in ("resource.md", "compatibility.md"):
        text = (ROOT / "docs" / document).read_text()
        blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for block in blocks:
            if block.startswith("apiVersion"):
                yield yaml.safe_load(block)["spec"]
                continue
            if block.startswith("  - "):  # further tiers
                block = f"cache:\n  l2:\n{block}"
            for piece in re.split(r"^(?=[a-z])", block, flags=re.MULTILINE):
                if found := yaml.safe_load(piece):
                    yield found


@pytest.mark.parametrize("fragment", list(fragments()), ids=lambda found: yaml.safe_dump(found)[:60])
def test_every_fragment_of_a_spec_is_accepted(fragment):
    spec = {"model": {"name": "Qwen/Qwen3.6-27B"}, "cache": {"l1": {"size": "100Gi"}}, **fragment}
    spec["cache"].setdefault("l1", {"size": "100Gi"})
    resource = {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": {"name": "x"},
        "spec": spec,
    }
    resolve(parse(resource), OperatorDefaults())


# -- what a status says ------------------------------------------------------------------------------------------------

NO_REASONS = {
    *conditions.TYPES,
    *("True", "False", "Unknown", "Running", "RollBack"),
    "NoPodAvailable",  # cannot be: Serving means that all are available
    *("ChunkSizeMismatch", "QuotaExceeded", "WaitingFor"),  # looked for among codes of failures
    "DryStart",  # a method of the probe
}


def reasons_in_code():
    """Every word that a condition can have as reason, without the codes of failures; other words are among them."""
    found = {str(phase) for phase in podstate.Phase} - {"Ended"}
    for module in ("lifecycle", "domain", "validation"):
        tree = ast.parse((SOURCE / "core" / f"{module}.py").read_text())
        words = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        found |= {word for word in words if re.fullmatch(r"[A-Z][A-Za-z]+", word)}
    return found | set(events._BLOCKED) | {"ApplyForbidden", "ApplyFailed"}


def test_the_reasons_of_conditions():
    table = section(RESOURCE, "Conditions").partition("\nA child that")[0]
    cells = re.findall(r"^\|[^|]*\| ((?:True|False|Unknown)[^|]*) \|", table, re.MULTILINE)
    told = {word for cell in cells for word in re.findall(r"`([A-Z]\w+)`", cell)}
    assert reasons_in_code() - NO_REASONS - told == set()
    assert told - reasons_in_code() - failures.FAILURES.keys() - CODES == set()
    assert set(re.findall(r"^\| \*\*(\w+)\*\* \|", table, re.MULTILINE)) == set(conditions.TYPES)


def test_the_events():
    tree = ast.parse((SOURCE / "core" / "events.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Event"]
    said = {call.args[1].value for call in calls if isinstance(call.args[1], ast.Constant)}
    said |= {*events._STALLED_REASONS.values(), "RollHeld", "StartFailed"}
    assert set(re.findall(r"`([A-Z]\w+)`", section(RESOURCE, "Events"))) == said
    assert set(re.findall(r"^\| `(\w+)` \|", REVISIONS.partition("| event | when |")[2], re.MULTILINE)) <= said


# -- metrics and alerts ------------------------------------------------------------------------------------------------


def families(text):
    """Names of metrics as an exposition declares them, also those that have no series yet."""
    return {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.endswith("_created")}


@cache
def operators_own():
    metrics = Metrics()
    QueueMetrics(metrics)
    UnfinishedWork(metrics, list, float)
    return families(metrics.expose().decode())


@cache
def exported():
    return operators_own().union(RECORDED, *(families((FIXTURES / file).read_text()) for file in FILES))


METRIC = re.compile(
    r"(?<![\w./])(?:vllm:|lmcache_mp_|qwen_cached_serve_|controller_runtime_|workqueue_|rest_client_|leader_election_"
    r"|qwencachedserve:)[a-z][a-z0-9_:]*"
)


@named(TEXTS)
def test_every_metric_is_exported(path):
    for metric in METRIC.findall("\n".join(code(path)) if path.suffix == ".md" else path.read_text()):
        assert metric in exported(), metric


def test_every_metric_of_the_operator_is_told():
    table = INSTALL.partition("| metric | labels |")[2].partition("\n\n")[0]
    told = set()
    for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE):
        first, *more = re.findall(r"`([a-z_…]+)`", cell.partition(":")[0])
        told.add(first)
        for name in more:
            # `…_b_total` behind `a_total` is `a_b_total`: the longest beginning of the first that gives a metric.
            ends = [first[:end] for end in range(len(first), 0, -1)] if name.startswith("…") else [""]
            told.add(next((begin + name.strip("…") for begin in ends if begin + name.strip("…") in exported()), name))
    assert told == operators_own()


def test_every_alert_is_told():
    rows = re.findall(r"^\| `(QwenCachedServe\w+)` \| .* \| (\w+) \|$", INSTALL, re.MULTILINE)
    assert dict(rows) == {rule["alert"]: rule["labels"]["severity"] for rule in alert_rules() if "alert" in rule}


# -- links -------------------------------------------------------------------------------------------------------------


def anchors(path):
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@named(DOCUMENTS)
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("https://"):
            continue
        place, _, anchor = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@named(DOCUMENTS)
def test_every_test_that_is_named_exists(path):
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", path.read_text()):
        assert f"def {name}(" in tests, name
    for name in re.findall(r"`(tests/[\w./]+)`", path.read_text()):
        assert (ROOT / name).exists(), name
