"""Where the API server is and who we are there: a ServiceAccount inside the cluster, a kubeconfig outside.

Order, as in the usual operators: an explicit kubeconfig, `KUBECONFIG`, the pod's own ServiceAccount,
`~/.kube/config`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.config_exception import ConfigException

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = Path("~/.kube/config")


class ConnectionFailed(Exception):  # noqa: N818
    """No usable way to a cluster; the message says what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which credentials to use; both empty: the order of the module's text."""

    kubeconfig: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What any HTTP client needs to reach the API server (kopf has its own)."""

    server: str
    ca_path: str | None
    insecure: bool
    authorization: str
    """Value of the Authorization header, empty with a client certificate."""
    certificate_path: str | None
    private_key_path: str | None
    proxy_url: str | None


async def load(origin: Origin) -> Configuration:
    """Return the client library's configuration for `origin`, with credentials as fresh as their source.

    Raises:
        ConnectionFailed: nothing usable was found.

    """
    configuration = Configuration()
    path = _kubeconfig(origin)
    try:
        if not path:
            kube_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return configuration
        await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path,
            context=origin.context or None,
            client_configuration=configuration,
            persist_config=False,
        )
    except ConfigException as error:
        raise ConnectionFailed(f"the kubeconfig or ServiceAccount cannot be used: {error}") from error
    except (yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        # The library takes a file for granted that has the right form.
        raise ConnectionFailed(
            f"{path or 'the ServiceAccount'} is no usable kubeconfig ({type(error).__name__}: {_one_line(error)}): "
            "check it with `kubectl config view`"
        ) from error
    return configuration


def client(configuration: Configuration) -> ApiClient:
    """Return the library's client; certificates and keys are read here.

    Raises:
        ConnectionFailed: one of them cannot be used.

    """
    try:
        return ApiClient(configuration)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConnectionFailed(
            f"certificate authority, client certificate or key for {configuration.host} cannot be used: "
            f"{_one_line(error)}"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _kubeconfig(origin: Origin) -> str:
    """Return the kubeconfig path(s) to read, empty for the pod's ServiceAccount."""
    chosen = origin.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not chosen and not origin.context and in_cluster():
        return ""
    path = chosen or str(DEFAULT_KUBECONFIG.expanduser())
    if not any(Path(part).expanduser().is_file() for part in path.split(os.pathsep) if part):
        raise ConnectionFailed(f"no kubeconfig at {path!r} and not in a pod: set --kubeconfig or KUBECONFIG")
    return path


def in_cluster() -> bool:
    """Whether this process runs in a pod with a mounted ServiceAccount token."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT_DIR / "token").is_file()


def own_namespace() -> str:
    """Return the namespace of the pod this process runs in, empty outside a cluster."""
    try:
        return (SERVICE_ACCOUNT_DIR / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


async def endpoint(origin: Origin) -> Endpoint:
    """Return address and credentials, read anew (tokens of ServiceAccounts and exec plugins expire)."""
    configuration = await load(origin)
    authorization = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    return Endpoint(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        authorization=authorization or "",
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
