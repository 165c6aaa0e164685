"""What the operator's cluster tests share: kubectl, the operator as a process, and waiting for conditions."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from qwen_cached_serve.kube.port import NotFound
from tests.cluster.warm_start import WarmProcess

ROOT = Path(__file__).parents[2]
KUBECTL = str(Path(sys.executable).parent / "kubectl")


class Cluster:
    """kubectl as administrator, and the way in for others."""

    def __init__(self, kubeconfig):
        self.kubeconfig = str(kubeconfig)

    def kubectl(self, *arguments, stdin=None, check=True):
        done = subprocess.run(
            [KUBECTL, *arguments],
            env=os.environ | {"KUBECONFIG": self.kubeconfig},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def apply(self, *manifests, field_manager="somebody", **options):
        return self.kubectl(
            "apply",
            "--server-side",
            f"--field-manager={field_manager}",
            "-f",
            "-",
            stdin=yaml.safe_dump_all(manifests),
            **options,
        )

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def patch(self, namespace, kind, name, patch, *extra, field_manager="somebody"):
        self.kubectl(
            "patch", "-n", namespace, kind, name, "--type=merge", "-p", json.dumps(patch),
            f"--field-manager={field_manager}", *extra,
        )  # fmt: skip

    def wait_until_served(self):
        """Wait for the definition of crds/; `kubectl wait` fails on one that has no conditions yet."""
        deadline = time.monotonic() + 30
        while self.kubectl("get", "--raw", "/apis/qwencache.dev/v1alpha1/qwencachedserves", check=False).returncode:
            assert time.monotonic() < deadline, "the API server does not serve the definition of crds/"
            time.sleep(0.1)

    def kubeconfig_for(self, namespace, account, path):
        """A kubeconfig with a token of that ServiceAccount and nothing else."""
        token = self.kubectl("create", "token", "-n", namespace, account, "--duration=1h").stdout.strip()
        config = yaml.safe_load(self.kubectl("config", "view", "--raw", "--minify", "--flatten").stdout)
        config["users"] = [{"name": "operator", "user": {"token": token}}]
        config["contexts"][0]["context"]["user"] = "operator"
        path.write_text(yaml.safe_dump(config))
        return path


class OperatorProcess:
    """The operator of this checkout, or of another release's sources, as a process of its own."""

    def __init__(self, log, kubeconfig, arguments, sources=None):
        self.log = log
        self.health = self.metrics_port = 0
        self.started = time.monotonic()
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("QCS_", "KUBE"))}
        told = ["--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1"]
        told += ["--health-port", "0", "--metrics-port", "0", *arguments]
        self.start_seconds = 30.0 if sources is None else 180.0  # imports included
        log.touch()  # the fork server opens it a moment after this
        if sources is None:
            self.process = WarmProcess(told, environ, log)
        else:
            command = [sys.executable, "-m", "qwen_cached_serve", *told]
            with log.open("a") as file:
                self.process = subprocess.Popen(
                    command, stdout=file, stderr=subprocess.STDOUT, env=environ | {"PYTHONPATH": str(sources)}
                )

    def lines(self):
        found = []
        for line in self.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def events(self, name):
        return [line for line in self.lines() if line.get("event") == name]

    def alive(self):
        return self.process.poll() is None

    async def wait_for_ports(self):
        def started():
            if not self.alive():
                raise RuntimeError(f"the operator ended: {self.log.read_text()[-3000:]}")
            return self.events("operator starts")

        line = (await eventually(started, self.start_seconds))[-1]
        self.health, self.metrics_port = line["health_port"], line["metrics_port"]

    async def wait_ready(self):
        await self.wait_for_ports()
        await eventually(lambda: self.fetch(self.health, "/readyz")[0] == 200, self.start_seconds)

    @staticmethod
    def fetch(port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, metric, **labels):
        """Sum of a metric's samples whose labels match."""
        total = 0.0
        for line in self.fetch(self.metrics_port, "/metrics")[1].splitlines():
            if line.startswith((metric + "{", metric + " ")) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def writes(self):
        methods = ("PATCH", "POST", "PUT", "DELETE")
        return sum(self.metric("rest_client_requests_total", method=method) for method in methods)

    def memory_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def stop(self, number=signal.SIGTERM, timeout=20):
        """End it; return the exit status."""
        if self.alive():
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout)
        finally:
            if self.alive():
                self.process.kill()
                self.process.wait(5)


LONGEST_REST_SECONDS = 0.4


async def eventually(check, timeout=30.0, interval=None):
    """Wait until `check()` (plain or a coroutine function) is true and return its value.

    NotFound and failed assertions in it mean "not yet"; the last one is the reason given when time runs out.
    Looks every `interval` seconds; by default often at first, then ever less: most conditions are of the kind that
    takes either no time or seconds, and every look costs the API server what the operator needs (docs/measurements.md).
    """
    deadline = time.monotonic() + timeout
    rest = interval or 0.05
    while True:
        reason, asked = None, time.monotonic()
        try:
            value = check()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
        except (AssertionError, NotFound, KeyError, IndexError) as error:
            reason = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {timeout} s: {reason or check}") from reason
        # A check by kubectl is a process: as long a rest as it took leaves the others a core.
        await asyncio.sleep(max(rest, time.monotonic() - asked))
        if interval is None:
            rest = min(1.5 * rest, LONGEST_REST_SECONDS)
