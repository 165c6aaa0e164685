"""The operator's own settings: flags, each with an environment variable of its name (`--log-level`, `QCS_LOG_LEVEL`).

A flag wins over its variable. Nothing here is about one resource: those settings are in its spec.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qwen_cached_serve.core.beside import Readers
from qwen_cached_serve.core.defaults import ENGINE_CPU_IMAGE, ENGINE_IMAGE

ENV_PREFIX = "QCS_"

DEFAULT_LEASE_NAME = "qwen-cached-serve"

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}


class SettingsError(ValueError):
    """A setting that cannot be used; the message names the flag and what it takes."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """See the flags' own help (`--help`), which is made from `_OPTIONS` below."""

    namespaces: tuple[str, ...] = ()
    kubeconfig: str = ""
    context: str = ""
    engine_image: str = ENGINE_IMAGE
    engine_cpu_image: str = ENGINE_CPU_IMAGE
    leader_election: bool = True
    lease_namespace: str = ""
    lease_name: str = DEFAULT_LEASE_NAME
    identity: str = ""
    bind_address: str = ""
    health_port: int = 8081
    metrics_port: int = 8080
    log_level: str = "info"
    log_format: str = "json"
    workers: int = 4
    resync_seconds: int = 600
    watch_behind_seconds: int = 300
    pod_status: bool = True
    monitoring_namespaces: tuple[str, ...] = Readers().monitoring_namespaces

    def __post_init__(self) -> None:
        for flag, names in (("--namespaces", self.namespaces), ("--monitoring-namespaces", self.monitoring_namespaces)):
            for name in names:
                if not _NAMESPACE.fullmatch(name):
                    raise SettingsError(f"{flag}: {name!r} is not a namespace name; give names, comma separated")
        for flag, port in (("--health-port", self.health_port), ("--metrics-port", self.metrics_port)):
            if not 0 <= port <= 65535:
                raise SettingsError(f"{flag}: {port} is not a port; give 1 to 65535, or 0 for any free one")
        if self.health_port == self.metrics_port != 0:
            raise SettingsError(f"--metrics-port: {self.metrics_port} is the health port already; give another")
        if not 1 <= self.workers <= 64:
            raise SettingsError(f"--workers: {self.workers} is out of range; give 1 to 64")
        if self.resync_seconds < 10:
            raise SettingsError(f"--resync-seconds: {self.resync_seconds} is too short; give 10 or more")
        if self.watch_behind_seconds and self.watch_behind_seconds < 10:
            raise SettingsError(
                f"--watch-behind-seconds: {self.watch_behind_seconds} is too short; give 10 or more, or 0 for never"
            )

    @property
    def cluster_wide(self) -> bool:
        """Whether all namespaces are served."""
        return not self.namespaces


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    help: str
    choices: tuple[str, ...] = ()


_OPTIONS = (
    _Option("namespaces", "namespaces to serve, comma separated; empty: all (needs the ClusterRole)"),
    _Option("kubeconfig", "kubeconfig file; empty: KUBECONFIG, the pod's ServiceAccount, ~/.kube/config"),
    _Option("context", "context of the kubeconfig; empty: its current one"),
    _Option("engine_image", "image for resources with accelerator GPU and no spec.engine.image"),
    _Option("engine_cpu_image", "image for resources with accelerator CPU and no spec.engine.image"),
    _Option("leader_election", "hold a Lease before writing (true or false); needed with more than one replica"),
    _Option("lease_namespace", "namespace of the Lease; empty: the pod's own, or the first served, or default"),
    _Option("lease_name", "name of the Lease"),
    _Option("identity", "who holds the Lease; empty: host name and a random part"),
    _Option("bind_address", "address for health and metrics; empty: all, IPv4 and IPv6"),
    _Option("health_port", "port of /healthz and /readyz; 0: any free one"),
    _Option("metrics_port", "port of /metrics; 0: any free one"),
    _Option("log_level", "least level that is logged", ("debug", "info", "warning", "error")),
    _Option("log_format", "json or console", ("json", "console")),
    _Option("workers", "resources reconciled at the same time"),
    _Option("resync_seconds", "seconds after which every resource is looked at even if nothing happened"),
    _Option(
        "watch_behind_seconds", "seconds that a watch may miss changes before /healthz says so (restart); 0: never"
    ),
    _Option("pod_status", "read /status of the pods' relay where it can be reached (true or false)"),
    _Option(
        "monitoring_namespaces",
        "namespaces of Prometheus, comma separated: its pods may read figures of served pods with a NetworkPolicy",
    ),
)


def load(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> OperatorSettings:
    """Return the settings from flags and environment.

    Raises:
        SettingsError: a value that cannot be used.
        SystemExit: `--help`, or a flag that does not exist (argparse says which).

    """
    environ = os.environ if environ is None else environ
    parser = argparse.ArgumentParser(
        prog="qwen-cached-serve-operator",
        description="Kubernetes operator for QwenCachedServe resources. Every flag can be set as QCS_… instead.",
    )
    for option in _OPTIONS:
        parser.add_argument(
            "--" + option.field.replace("_", "-"), choices=option.choices or None, default=None, help=option.help
        )
    given = vars(parser.parse_args(list(argv)))
    types = {field.name: str(field.type) for field in dataclasses.fields(OperatorSettings)}
    values: dict[str, object] = {}
    for option in _OPTIONS:
        text = given[option.field]
        if text is None:
            text = environ.get(ENV_PREFIX + option.field.upper())
        if text is not None:
            values[option.field] = _parse(option, types[option.field], text)
    return OperatorSettings(**values)  # type: ignore[arg-type]


def identity(settings: OperatorSettings) -> str:
    """Return the Lease holder's name: unique to this process, so that a restarted pod is somebody else."""
    return settings.identity or f"{socket.gethostname()}_{uuid.uuid4()}"


def _parse(option: _Option, kind: str, text: str) -> object:
    flag = "--" + option.field.replace("_", "-")
    if kind.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind == "int":
        try:
            return int(text)
        except ValueError:
            raise SettingsError(f"{flag}: {text!r} is not a whole number") from None
    if kind == "bool":
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise SettingsError(f"{flag}: {text!r} is neither true nor false")
    if option.choices and text not in option.choices:
        raise SettingsError(f"{flag}: {text!r} is not one of {', '.join(option.choices)}")
    return text
