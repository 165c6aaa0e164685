"""A real control plane, our CRD and RBAC in it, and the operator as a process under its shipped ServiceAccount.

`QCS_KUBECONFIG` reuses a running cluster (its user must be an administrator); otherwise localkube brings one up
with simulated nodes. A machine that cannot do that skips this tier with one line; under `CI=true` that is a
failure. Every operator here logs in with a token of the ServiceAccount that `config/` ships, bound as `config/`
binds it, so each test also proves that those permissions suffice.
"""

import asyncio
import contextlib
import os
import re
import signal
import uuid
from pathlib import Path

import pytest
import yaml

from qwen_cached_serve.kube import connection
from qwen_cached_serve.kube.client import KubeClient
from tests.cluster.operator_resources import report
from tests.cluster.operator_support import ROOT, Cluster, OperatorProcess
from tests.cluster.registry import Registry
from tests.machine import unavailable

STAGES = tuple(str(path) for path in sorted((Path(__file__).parent / "stages").glob("*.yaml")))
OPERATOR_NAMESPACE = "qwen-cached-serve"
OPERATOR_ACCOUNT = "qwen-cached-serve-operator"
LOGS = ROOT / "build" / "logs" / "cluster"


@pytest.fixture(scope="session")
def cluster():
    given = os.environ.get("QCS_KUBECONFIG")
    if given:
        made, down = Cluster(given), None
    else:
        made, down = _local_cluster()
    try:
        _install(made)
        yield made
    finally:
        if down:
            down()


def _local_cluster():
    from localkube.cluster import Options, up
    from localkube.errors import LocalKubeError

    version = os.environ.get("QCS_KUBERNETES_VERSION", Options.version)
    try:
        found = up(Options(name=f"tests-{os.getpid()}", version=version, simulated_nodes=2, stages=STAGES), print)
    except LocalKubeError as error:
        unavailable(error)
    return Cluster(found.kubeconfig), found.down


def _install(cluster):
    crds = sorted((ROOT / "crds").glob("*.yaml"))
    assert crds, "crds/ is empty: run make crds"
    for crd in crds:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crd))
    cluster.wait_until_served()
    shipped = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(ROOT / "config")).stdout))
    # Not the Deployment: the operator runs here from this checkout.
    kinds = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    for namespaces_first in (True, False):
        part = [m for m in shipped if m["kind"] in kinds and (m["kind"] == "Namespace") is namespaces_first]
        cluster.apply(*part, field_manager="install")


@pytest.fixture(scope="session")
def operator_kubeconfig(cluster, tmp_path_factory):
    path = tmp_path_factory.mktemp("operator") / "kubeconfig"
    return cluster.kubeconfig_for(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT, path)


@pytest.fixture
async def api(cluster):
    """Administrator's client, for reading."""
    client = await KubeClient.connect(connection.Origin(kubeconfig=cluster.kubeconfig))
    yield client
    await client.close()


@pytest.fixture
def namespace(cluster, request):
    name = "t-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-") + "-" + uuid.uuid4().hex[:5]
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)


@pytest.fixture
async def start_operator(operator_kubeconfig, namespace, request):
    """Start operators for this test's namespace; all are ended with it and their logs kept."""
    LOGS.mkdir(parents=True, exist_ok=True)
    running = []

    async def start(*arguments, kubeconfig=None, lease=False, ready=True, namespaces=None, **process):
        log = LOGS / f"{namespace}.{len(running)}.log"
        log.unlink(missing_ok=True)
        served = ["--namespaces", namespaces or namespace]
        election = [] if lease else ["--leader-election", "false"]
        made = OperatorProcess(log, kubeconfig or operator_kubeconfig, [*served, *election, *arguments], **process)
        running.append(made)
        if ready:
            await made.wait_ready()
        return made

    yield start
    for made in running:
        if made.alive():
            made.stop(signal.SIGKILL)


@pytest.fixture
async def operator(start_operator):
    return await start_operator()


@pytest.fixture
async def registry(api, namespace):
    made = Registry(api, namespace, report(784))
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
