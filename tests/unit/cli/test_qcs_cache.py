"""`qcs cache list`: a folder and lists of names; the cluster's resources are given."""

import io
import json
import sys

import pytest

from qwen_cached_serve.cli import cache_list
from qwen_cached_serve.inpod.namespaces import MARKER

A, B = (f"v1-{letter * 40}" for letter in "ab")
RESOURCE = {
    "metadata": {"namespace": "llm", "name": "q36"},
    "status": {"identities": [{"identity": A, "pods": 1, "summary": "FLASH_ATTN/16 N784 tp1 auto"}]},
}


@pytest.fixture
def given_resources(monkeypatch):
    monkeypatch.setattr(cache_list, "fetch", lambda _origin, namespace, name: [RESOURCE] if not namespace else [])


@pytest.fixture
def store(tmp_path):
    for identity in (A, B):
        folder = tmp_path / f"qcs-{identity}"
        folder.mkdir()
        (folder / "one.data").write_bytes(b"x" * 2048)
    (tmp_path / f"qcs-{B}" / MARKER).write_text(json.dumps({"summary": "TRITON_ATTN/16 N544"}))
    (tmp_path / "lost+found").mkdir()
    (tmp_path / f"qcs-{A}.tar").write_text("no folder")
    return tmp_path


@pytest.mark.usefixtures("given_resources")
def test_a_folder_is_told_apart(run_qcs, store):
    status, out, err = run_qcs("cache", "list", "--path", store)
    assert (status, err) == (0, "")
    header, used, unused = out.splitlines()
    assert header.split()[:3] == ["NAMESPACE", "STATE", "SIZE"]
    assert f"qcs-{A}  in use" in used
    assert "2.0KiB" in used
    assert used.endswith("llm/q36 (1)")
    assert f"qcs-{B}  unused here" in unused
    assert "TRITON_ATTN/16 N544" in unused
    assert (store / f"qcs-{B}" / "one.data").is_file()


@pytest.mark.usefixtures("given_resources")
def test_names_come_from_any_list(run_qcs, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"qcs-{B}@m@1@0@ff\n"))
    status, out, _ = run_qcs("cache", "list", "--names", "-", "-o", "json")
    rows = json.loads(out)
    assert status == 0
    assert [(row["namespace"], row["used"], row["found"]) for row in rows] == [
        (f"qcs-{A}", True, False),
        (f"qcs-{B}", False, True),
    ]
    assert rows[0]["users"] == [{"resource": "llm/q36", "pods": 1}]


@pytest.mark.usefixtures("given_resources")
def test_without_a_store_what_is_in_use_is_listed(run_qcs):
    status, out, _ = run_qcs("cache", "list")
    assert status == 0
    assert "in use " in out
    assert "not in this store" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--path", "/nowhere/at/all"), "cannot be read"),
        (("--names", "/nowhere/at/all"), "cannot be read"),
        (("--path", "/", "--names", "-"), "give one of them"),
    ],
)
def test_what_cannot_be_read_is_named(run_qcs, arguments, words):
    status, _, err = run_qcs("cache", "list", *arguments)
    assert status == 1
    assert words in err
