"""`make chart-packages`: equal sources give equal bytes, and what is in the archive is what was rendered."""

import os
import shutil
import tarfile
import time

import yaml

from tests.chart.helm_support import OPERATOR, ROOT
from tools import charts


def test_two_checkouts_give_equal_bytes(helm, tmp_path, monkeypatch):
    first = charts.package(tmp_path / "one", helm.binary)
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "charts", copy)
    for path in copy.rglob("*"):
        os.utime(path, (time.time() - 1000, time.time() - 1000))
    monkeypatch.setattr(charts, "OPERATOR", copy / "qwen-cached-serve")
    monkeypatch.setattr(charts, "CRDS", copy / "qwen-cached-serve-crds")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    second = charts.package(tmp_path / "two", helm.binary)
    assert [path.name for path in first] == [path.name for path in second]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


def test_the_archive_renders_the_same_and_holds_no_strays(helm, tmp_path):
    _, archive = charts.package(tmp_path, helm.binary)
    assert helm.template(chart=archive) == helm.template()
    with tarfile.open(archive) as opened:
        inside = {member.name for member in opened.getmembers()}
    expected = {f"qwen-cached-serve/{p.relative_to(OPERATOR)}" for p in OPERATOR.rglob("*") if p.is_file()}
    assert inside == expected
    assert yaml.safe_load((OPERATOR / "Chart.yaml").read_text())["version"] in archive.name
