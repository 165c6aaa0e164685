"""The helm binary without the user's repositories, plugins and kubeconfig, and what the charts' tests ask of it."""

import os
import subprocess
from pathlib import Path

import yaml

from localkube import build, modules
from localkube.errors import LocalKubeError
from tests.machine import unavailable

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "charts" / "qwen-cached-serve"
CRDS = ROOT / "charts" / "qwen-cached-serve-crds"
RELEASE = NAMESPACE = "qwen-cached-serve"
OLDEST, NEWEST = "1.34.0", "1.37.0"


def built(name) -> Path:
    """A program of localkube's tools; the first test that wants it builds it, which takes minutes."""
    try:
        return build.find_binaries([name], modules.DEFAULT_VERSION, print)[name]
    except LocalKubeError as error:
        unavailable(error)


def monitoring_crds() -> list[Path]:
    """The definitions of the Prometheus operator that the chart's monitors need."""
    module = "github.com/prometheus-operator/prometheus-operator"
    try:
        folder = build.source_folder(modules.PROMETHEUS_OPERATOR, module) / "example" / "prometheus-operator-crd"
    except LocalKubeError as error:
        unavailable(error)
    return [
        folder / f"monitoring.coreos.com_{name}.yaml" for name in ("podmonitors", "prometheusrules", "servicemonitors")
    ]


class Helm:
    def __init__(self, binary, home, kubeconfig=None):
        self.binary, self._home = binary, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        self.environ = kept | {
            "HELM_CACHE_HOME": str(home / "cache"),
            "HELM_CONFIG_HOME": str(home / "config"),
            "HELM_DATA_HOME": str(home / "data"),
            "KUBECONFIG": str(kubeconfig or home / "none"),
        }

    def run(self, *arguments, check=True):
        done = subprocess.run(
            [self.binary, *map(str, arguments)], env=self.environ, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"helm {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done

    def values(self, values):
        path = self._home / "values.yaml"
        path.write_text(yaml.safe_dump(values or {}))
        return "--values", path

    def template(self, values=None, *, chart=OPERATOR, kube=NEWEST, release=RELEASE, namespace=NAMESPACE, options=()):
        """The rendered objects, in Helm's order of installing them."""
        done = self.run(
            "template", release, chart, "--namespace", namespace, "--kube-version", kube, *self.values(values), *options
        )
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def refusal(self, values, *, chart=OPERATOR, release=RELEASE):
        """What Helm says about values that it must not take."""
        done = self.run("template", release, chart, *self.values(values), check=False)
        assert done.returncode, "these values were taken"
        return " ".join(done.stderr.split())

    def notes(self, values=None, *, chart=OPERATOR):
        """NOTES.txt as `helm install` prints it, without a cluster."""
        options = ("--namespace", NAMESPACE, "--dry-run=client", *self.values(values))
        done = self.run("install", RELEASE, chart, *options)
        return done.stdout.partition("NOTES:\n")[2]


def of(manifests, kind):
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def one(manifests, kind):
    [found] = of(manifests, kind)
    return found


def pod_of(manifests):
    return one(manifests, "Deployment")["spec"]["template"]["spec"]


def environment(manifests):
    [container] = pod_of(manifests)["containers"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}
