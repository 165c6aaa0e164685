"""The transcript: how it is written down, and what the checked-in one claims."""

import re
from pathlib import Path

import pytest
import yaml

from tools.transcript.__main__ import TARGET
from tools.transcript.page import Page, UnfitError
from tools.transcript.session import CommandError, Session, stage_with_report


def test_commands_in_a_row_share_a_block_and_words_end_it():
    page = Page("Title")
    page.say("Some\n    words.")
    page.command("one", "a  \nb\n\n")
    page.command("two", "")
    page.note("An aside.")
    page.chapter("Next")
    page.command("three", "c\n")
    blocks = "```console\n$ one\na\nb\n\n$ two\n```\n\n> An aside.\n\n## Next\n\n```console\n$ three\nc\n```\n"
    assert page.text() == "# Title\n\nSome words.\n\n" + blocks


def test_a_page_with_something_of_this_machine_is_refused():
    page = Page("Title")
    page.command("ls", "/home/somebody/file")
    with pytest.raises(UnfitError, match="/home/somebody"):
        page.text(("/home/somebody", "host"))
    assert page.text(("/home/some", "host"))


def test_a_command_that_fails_ends_it(tmp_path):
    page, program = Page("Title"), tmp_path / "helm"
    program.write_text("#!/bin/sh\necho said $1\nexit ${2:-0}\n")
    program.chmod(0o755)
    session = Session(page, {}, program)
    assert session.run("helm 'two words'") == "said two words\n"
    with pytest.raises(CommandError, match="`helm x 3` ended with 3"):
        session.run("helm x 3")
    assert page.text().count("$ helm") == 1


def test_the_probe_of_a_simulated_pod_ends_with_the_report():
    report = 'a "report" of {"N": 784}\nin two lines'
    stage = stage_with_report(report)
    assert stage["spec"]["weight"] > 0, "localkube's own stage would win"
    literal = re.search(
        r'get \$annotations "qcs.test/message" \| default ("(?:[^"\\]|\\.)*") ',
        str(stage["spec"]["next"]["statusTemplate"]),
    )
    assert yaml.safe_load(literal[1]) == report


def tables(text, head):
    """Every table that begins with that line, in order."""
    return re.findall(rf"^{head}[^\n]*\n((?:[^\n$`]+\n)+)", text, re.MULTILINE)


def test_the_page_that_is_checked_in_shows_what_it_says():
    text = TARGET.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert "/home/" not in text
    uids = [set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", table)) for table in tables(text, "NAME +UID")]
    served, upgraded, back, edited, rolled_back, uninstalled = uids
    assert served == upgraded == back, "an upgrade changes no pod"
    assert len(served) == len(served | edited) - len(edited) == 3, "the edit replaces every pod"
    assert not rolled_back & edited
    assert uninstalled == rolled_back, "what serves goes on"
    chapters = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert [name.split()[0].strip(",:") for name in chapters] == [
        "Install", "Apply", "Upgrade", "An", "Roll", "Uninstall", "Delete",
    ]  # fmt: skip
