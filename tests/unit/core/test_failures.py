"""The catalogue of failure classes: complete, well formed, and the documentation says what it says."""

import re
from pathlib import Path

import pytest

from qwen_cached_serve.api.crd import build_crd
from qwen_cached_serve.core.failures import FAILURES, troubleshooting_table
from qwen_cached_serve.inpod.refusal import CODES

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "troubleshooting.md"


def test_the_document_holds_the_table():
    """If this fails: `python -m tools.troubleshooting` writes the table anew."""
    assert troubleshooting_table() in DOCUMENT.read_text()


def test_every_code_of_the_pods_scripts_has_a_class():
    assert CODES - FAILURES.keys() == set()


def test_the_pods_document_has_every_code_and_says_which_heal():
    text = (ROOT / "docs" / "pod.md").read_text()
    table = text.partition("| code | what to do |")[2].partition("\n\n")[0]
    told = {
        code: bool(star)
        for line in table.splitlines()
        for code, star in re.findall(r"`([A-Z][A-Za-z0-9]+)`(\*?)", line.split("|")[1] if line.startswith("|") else "")
    }
    assert told == {code: FAILURES[code].heals for code in CODES}


@pytest.mark.parametrize("entry", FAILURES.values(), ids=lambda entry: entry.code)
def test_a_class_says_something(entry):
    assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", entry.code)
    assert entry.meaning.endswith(".")
    assert entry.remedy.endswith(".")
    # A condition's reason may have 1,024 characters; columns of a terminal have fewer.
    assert len(entry.code) <= 40


def _exists(path):
    node = build_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path.split("."):
        node = node.get("properties", {}).get(part) or node.get("items", {}).get("properties", {}).get(part)
        if node is None:
            return False
        if node.get("additionalProperties") or node.get("x-kubernetes-preserve-unknown-fields"):
            return True
    return True


@pytest.mark.parametrize("entry", FAILURES.values(), ids=lambda entry: entry.code)
def test_the_fields_that_a_class_names_exist(entry):
    named = re.findall(r"\bspec\.[a-z][\w.]*\w", f"{entry.meaning} {entry.field} {entry.remedy}")
    assert [path for path in named if not _exists(path)] == []
