"""Every manifest of examples/ and config/ by strict server-side dry-run; foreign kinds meet their real definitions."""

import time
from pathlib import Path

import pytest
import yaml

from localkube import build, modules
from localkube.errors import LocalKubeError
from tests.cluster.operator_support import ROOT
from tests.machine import unavailable

FOLDER = ROOT / "examples"
FILES = sorted(path for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml")
DEFINITIONS = {
    "github.com/argoproj/argo-cd/v3": ["manifests/crds/application-crd.yaml"],
    "github.com/fluxcd/kustomize-controller": ["config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"],
    "github.com/fluxcd/source-controller": ["config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"],
    "github.com/kedacore/keda/v2": ["config/crd/bases/keda.sh_scaledobjects.yaml"],
}
DRY_RUN = ("apply", "--server-side", "--dry-run=server", "--validate=strict")
NOT_TO_BE_HAD = {"HelmRelease"}
"""The module that holds its definition is not served here (facts/local-cluster.md §7)."""


@pytest.fixture(scope="module")
def definitions(cluster):
    """Argo CD's Application, Flux' Kustomization and GitRepository, KEDA's ScaledObject; gone again afterwards."""
    try:
        folders = {name: build.source_folder(modules.GITOPS_DEFINITIONS, name) for name in DEFINITIONS}
    except LocalKubeError as error:
        unavailable(error)
    files = [folders[name] / path for name, paths in DEFINITIONS.items() for path in paths]
    named = [argument for path in files for argument in ("-f", str(path))]
    cluster.kubectl("apply", "--server-side", *named)
    kinds = [yaml.safe_load(path.read_text())["spec"]["names"]["plural"] for path in files]
    deadline = time.monotonic() + 60
    for kind in kinds:
        while cluster.kubectl("get", kind, "-n", "default", check=False).returncode:
            assert time.monotonic() < deadline, f"the API server does not serve {kind}"
            time.sleep(0.1)
    yield
    cluster.kubectl("delete", "--wait=false", *named)


def documents(path: Path):
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] not in NOT_TO_BE_HAD:
            document["metadata"]["namespace"] = "default"  # it is there; nothing stays
            yield document


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_an_example_is_accepted_by_the_api_server(cluster, definitions, path):
    found = list(documents(path))
    done = cluster.kubectl(*DRY_RUN, "-f", "-", stdin=yaml.safe_dump_all(found))
    assert done.stdout.count("serverside-applied") == len(found)
    assert "warning" not in done.stderr.lower()


def test_what_kustomize_makes_of_config_and_of_the_models_is_accepted(cluster):
    made = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-k", str(ROOT / "config")
    )
    assert "deployment.apps/qwen-cached-serve-operator serverside-applied" in made.stdout
    [model] = yaml.safe_load_all(cluster.kubectl("kustomize", str(FOLDER / "gitops" / "models")).stdout)
    assert (model["kind"], model["metadata"]["namespace"]) == ("QwenCachedServe", "llm")


def test_the_health_check_joins_what_argo_cd_has_in_its_config_map(cluster, namespace):
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm"}, "data": {"url": "https://x"}}
    theirs["metadata"]["namespace"] = namespace
    cluster.apply(theirs, field_manager="argocd")
    ours = ROOT / "config" / "argocd" / "argocd-cm.yaml"
    cluster.kubectl(
        "apply", "--server-side", "--field-manager=qwen-cached-serve-health", "-n", namespace, "-f", str(ours)
    )
    data = cluster.get("configmap", "-n", namespace, "argocd-cm")["data"]
    assert set(data) == {"url", *yaml.safe_load(ours.read_text())["data"]}
