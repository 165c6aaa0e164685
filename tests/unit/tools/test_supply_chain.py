"""Licences, bills of materials and what an audit's answer means."""

import json
from email.message import Message
from importlib.metadata import Distribution, distribution

import pytest

from images.operator import sbom
from tools import audit, licences


def test_the_licence_list_is_that_of_what_is_pinned():
    assert licences.main(["--check"]) == 0


def test_every_dependency_states_a_licence_and_none_asks_for_our_sources():
    rows = [line.split(" | ")[2].rstrip(" |") for line in licences.rendered().splitlines() if line.startswith("| ")]
    assert len(rows) > 30
    assert "not stated" not in rows
    assert not [words for words in rows if "GPL" in words or "General Public" in words]


class Told(Distribution):
    """A distribution of which only metadata are asked."""

    def __init__(self, *fields):
        self._message = Message()
        for name, value in (("Name", "a_b"), ("Version", "1.0"), *fields):
            self._message[name] = value

    @property
    def metadata(self):
        return self._message

    def read_text(self, filename):
        return None

    def locate_file(self, path):
        return path


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "x")], "MIT OR Apache-2.0"),
        ([("Classifier", "License :: OSI Approved :: MIT License"), ("License", "see file")], "MIT License"),
        ([("Classifier", "License :: OSI Approved"), ("License", "BSD\nlong text")], "BSD"),
        ([], ""),
    ],
)
def test_a_licence_is_told_in_the_best_words_there_are(fields, expected):
    assert sbom.licence_words(Told(*fields)) == expected


DPKG = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: shared libraries
 more of it

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def bill(tmp_path, capsys):
    assert sbom.main(["qcs-operator", "0.1.0", "--root", str(tmp_path)]) == 0
    return capsys.readouterr().out


def test_a_bill_lists_python_and_debian_packages_once_and_always_in_the_same_bytes(tmp_path, capsys):
    dpkg = tmp_path / "var" / "lib" / "dpkg"
    (dpkg / "status.d").mkdir(parents=True)
    (dpkg / "status").write_text(DPKG)
    (dpkg / "status.d" / "tzdata").write_text("Package: tzdata\nVersion: 2026a-0\nArchitecture: all\n")
    text = bill(tmp_path, capsys)
    assert bill(tmp_path, capsys) == text
    made = json.loads(text)
    assert (made["bomFormat"], made["specVersion"], made["metadata"]["component"]["version"]) == (
        "CycloneDX",
        "1.6",
        "0.1.0",
    )
    purls = [one["purl"] for one in made["components"]]
    assert purls == sorted(set(purls))
    assert f"pkg:pypi/kopf@{distribution('kopf').version}" in purls
    assert [purl for purl in purls if purl.startswith("pkg:deb")] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64",
        "pkg:deb/debian/tzdata@2026a-0?arch=all",
    ]


def test_a_base_without_dpkg_is_no_error(tmp_path, capsys):
    assert "pkg:deb" not in bill(tmp_path, capsys)


KNOWN = {"name": "yarl", "version": "1.0", "vulns": []}
BROKEN = {"name": "requests", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"]}]}
UNKNOWN = {"name": "ours", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("dependencies", "expected"),
    [
        ([KNOWN], ["audit: 1 files, 1 pins judged, 0 vulnerabilities"]),
        (
            [KNOWN, BROKEN, UNKNOWN],
            [
                "r.txt: requests 2.0 has PYSEC-1, fixed in 2.1, 3.0",
                "audit: not known to the advisory service: ours",
                "audit: 1 files, 2 pins judged, 1 vulnerabilities",
            ],
        ),
        (
            [UNKNOWN],
            ["audit: not done, the advisory service cannot be reached from here or knows none of the packages"],
        ),
    ],
)
def test_what_an_audit_tells(dependencies, expected):
    assert list(audit.words({"r.txt": audit.outcome("r.txt", {"dependencies": dependencies})})) == expected


def test_a_file_without_an_answer_beside_others_is_told():
    outcomes = {"a.txt": audit.outcome("a.txt", {"dependencies": [KNOWN]}), "b.txt": audit.Outcome((), 0, ())}
    assert audit.not_judged(outcomes) == ["b.txt"]
    assert "audit: b.txt was not judged; run it again" in list(audit.words(outcomes))
    assert audit.not_judged({"b.txt": outcomes["b.txt"]}) == []


def test_every_hashed_file_is_audited():
    names = {str(path.relative_to(audit.ROOT)) for path in audit.files()}
    assert {
        "requirements/runtime.txt",
        "requirements/dev.txt",
        "requirements/audit.txt",
        "images/tools.txt",
        "images/engine/requirements.txt",
        "images/engine-cpu/requirements.txt",
        "images/engine-cpu/torch.txt",
    } <= names
