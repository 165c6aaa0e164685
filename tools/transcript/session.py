"""Where commands are typed: a cluster, its administrator's kubeconfig, and the three programs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from localkube import paths
from tools.transcript.page import Page

ROOT = Path(__file__).resolve().parents[2]
_PROGRAMS = Path(sys.executable).parent
_NOTHING_RAN = '"simulated by localkube: nothing ran"'


class CommandError(Exception):
    """A command of the transcript did not do what the page says."""


class Session:
    """Runs commands from the top of the checkout, as a reader would, and writes them into the page."""

    def __init__(self, page: Page, environ: Mapping[str, str], helm: Path) -> None:
        self._page = page
        self._environ = {**environ, "NO_COLOR": "1", "COLUMNS": "200"}
        self._programs = {"helm": helm, "kubectl": _PROGRAMS / "kubectl", "qcs": _PROGRAMS / "qcs"}

    def run(self, line: str) -> str:
        """Run a command, add it to the page and return what it printed.

        Raises:
            CommandError: it ended with another status than 0.

        """
        program, *arguments = shlex.split(line)
        done = subprocess.run(
            [self._programs[program], *arguments],
            cwd=ROOT,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )
        printed = done.stdout + done.stderr
        print(f"$ {line}\n{printed}", file=sys.stderr, flush=True)
        if done.returncode:
            raise CommandError(f"`{line}` ended with {done.returncode}")
        self._page.command(line, printed)
        return printed


def stage_with_report(report: str) -> dict[str, Any]:
    """Return localkube's stage for pods, its init containers ending with a probe's report.

    So a resource as it stands in examples/ becomes ready: it needs no annotation that only a test would know.
    """
    stage, *_ = yaml.safe_load_all((paths.STAGES / "pod.yaml").read_text(encoding="utf-8"))
    template: str = stage["spec"]["next"]["statusTemplate"]
    if template.count(_NOTHING_RAN) != 1:
        raise CommandError(f"localkube's stage for pods does not say {_NOTHING_RAN} any more")
    # The quotes and escapes of JSON are those of Go's string literals, too.
    stage["spec"]["next"]["statusTemplate"] = template.replace(_NOTHING_RAN, json.dumps(report))
    stage["spec"]["weight"] = 1
    stage["metadata"]["name"] = "transcript-pod-ready"
    return dict(stage)
