"""Entry point of `python -m tools.transcript`."""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from pathlib import Path

import yaml

from localkube.cluster import Options, up
from localkube.errors import LocalKubeError
from tests.chart.helm_support import Helm, built
from tests.cluster.chart_release import ChartOperators
from tests.cluster.operator_resources import report
from tests.cluster.operator_support import Cluster
from tools.transcript.page import Page
from tools.transcript.session import ROOT, Session, stage_with_report
from tools.transcript.story import NAMESPACE, RELEASE, Story

TARGET = ROOT / "docs" / "transcript.md"
_TITLE = "From install to uninstall on a real API server"
_BLOCK_SIZE = 784


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def transcript(name: str, folder: Path) -> str:
    """Bring a cluster up, play the story on it, take it down; return the page."""
    stage = folder / "stage.yaml"
    stage.write_text(yaml.safe_dump(stage_with_report(report(_BLOCK_SIZE))), encoding="utf-8")
    helm = built("helm")
    local = up(Options(name=name, simulated_nodes=2, stages=(str(stage),)), _say)
    cluster = Cluster(local.kubeconfig)
    operators = ChartOperators(
        cluster,
        NAMESPACE,
        RELEASE,
        folder=folder,
        logs=ROOT / "build" / "logs" / "transcript",
        sources=ROOT / "operator" / "src",
    )
    page = Page(_TITLE)
    try:
        session = Session(page, Helm(helm, folder, local.kubeconfig).environ, helm)
        Story(page, session, cluster, operators).tell()
    finally:
        operators.kill()
        local.down(_say)
    return page.text((str(Path.home()), str(ROOT), str(folder), socket.gethostname()))


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write docs/transcript.md by playing it on a cluster of its own.")
    parser.add_argument("--name", default="transcript", help="name of the cluster")
    parser.add_argument("--into", type=Path, default=TARGET, help="file to write")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            text = transcript(options.name, Path(folder))
    except LocalKubeError as error:
        raise SystemExit(str(error)) from None
    options.into.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
