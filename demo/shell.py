"""How the demo does things: commands as argument lists, waiting on conditions, HTTP through port-forward."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from demo.narrate import Narrator

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent


class DemoError(RuntimeError):
    """A step did not end as it must; the message says which and what was seen."""


class Shell:
    """Commands against one cluster."""

    def __init__(self, kubeconfig: str | None, narrator: Narrator) -> None:
        self._env = dict(os.environ)
        if kubeconfig:
            self._env["KUBECONFIG"] = kubeconfig
        self._narrator = narrator

    def run(self, argv: list[str], *, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """
        Run a command and return what it printed.

        Raises:
            DemoError: it failed and `check` is set; the message holds its last lines.

        """
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, env=self._env, cwd=ROOT, check=False)
        if check and done.returncode:
            tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
            raise DemoError(f"`{' '.join(argv[:6])} …` ended with {done.returncode}:\n{tail}")
        return done

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl, return its standard output."""
        return self.run([kubectl_path(), *args], stdin=stdin, check=check).stdout

    def kubectl_fails(self, *args: str, stdin: str | None = None) -> str:
        """
        Run kubectl where it must be refused, return the refusal.

        Raises:
            DemoError: it was accepted.

        """
        done = self.run([kubectl_path(), *args], stdin=stdin, check=False)
        if done.returncode == 0:
            raise DemoError(f"`kubectl {' '.join(args)}` was accepted but must be refused")
        return done.stderr.strip()

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """One object as data, or None when it does not exist."""
        out = self.kubectl("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "json")
        return json.loads(out) if out.strip() else None

    def list(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a kind in a namespace."""
        args = ["get", kind, "-n", namespace, "-o", "json"]
        if selector:
            args += ["-l", selector]
        items: list[dict[str, Any]] = json.loads(self.kubectl(*args))["items"]
        return items

    def wait(
        self,
        what: str,
        look: Callable[[], T | None],
        *,
        timeout_seconds: float,
        remark: Callable[[], str] = lambda: "",
        poll_seconds: float = 2.0,
    ) -> T:
        """
        Look until there is something, saying what was last seen.

        Raises:
            DemoError: the time is over; the message holds the last remark.

        """
        deadline = time.monotonic() + timeout_seconds
        with self._narrator.waiting(what) as progress:
            while True:
                found = look()
                if found is not None:
                    return found
                progress.remark = remark()
                if time.monotonic() > deadline:
                    raise DemoError(
                        f"waited {timeout_seconds:.0f} s for {what}; last seen: {progress.remark or 'nothing'}"
                    )
                time.sleep(poll_seconds)

    @contextmanager
    def forward(self, target: str, namespace: str, port: int) -> Iterator[str]:
        """Forward a local port to `target` (pod/NAME or svc/NAME); yields the base URL."""
        process = subprocess.Popen(
            [kubectl_path(), "port-forward", "-n", namespace, target, f":{port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._env,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+)", line)
            if not match:
                process.terminate()
                error = process.stderr.read() if process.stderr else ""
                raise DemoError(f"port-forward to {target} failed: {line}{error}")
            yield f"http://127.0.0.1:{match[1]}"
        finally:
            process.terminate()
            process.wait()


def kubectl_path() -> str:
    """Path of the kubectl that comes with the requirement files."""
    return str(Path(sys.executable).with_name("kubectl"))


def http(url: str, body: dict[str, Any] | None = None, timeout_seconds: float = 600) -> str:
    """
    GET, or POST of JSON; returns the body.

    Raises:
        DemoError: no answer, or an HTTP error; the message holds the server's words.

    """
    request = urllib.request.Request(url)
    if body is not None:
        request = urllib.request.Request(
            url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
        )
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:
            text: str = answer.read().decode()
            return text
    except urllib.error.HTTPError as error:
        raise DemoError(f"{url}: {error.code} {error.read().decode(errors='replace')[:300]}") from error
    except OSError as error:
        raise DemoError(f"{url}: {error}") from error


def counter(metrics: str, name: str) -> float:
    """Sum of one counter's series in a Prometheus text; 0 when it has none yet."""
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if re.match(rf"{re.escape(name)}[{{ ]", line)
    )
