"""gitops-judge: Argo CD's health of an object by the Lua check that is shipped, kstatus' status of it, Flux's apply."""

import json
import subprocess

import yaml

from tests.chart.helm_support import ROOT, built

ARGOCD_CM = ROOT / "config" / "argocd" / "argocd-cm.yaml"
HEALTH_KEY = "resource.customizations.health.qwencache.dev_QwenCachedServe"


class GitopsJudge:
    def __init__(self, home):
        self._binary = built("gitops-judge")
        self._script = home / "health.lua"
        self._script.write_text(yaml.safe_load(ARGOCD_CM.read_text())["data"][HEALTH_KEY])

    def verdicts(self, objects):
        """Per object: (status in Argo CD, message there, status by kstatus)."""
        lines = self._run(["health", "--script", self._script], "\n".join(map(json.dumps, objects)))
        return [(one["argocd"]["status"], one["argocd"]["message"], one["kstatus"]["status"]) for one in lines]

    def flux_apply(self, kubeconfig, namespace, objects):
        """What Flux's engine did: {kind/namespace/name: created | configured | unchanged}."""
        options = ["apply", "--kubeconfig", kubeconfig, "--namespace", namespace]
        return {one["subject"]: one["action"] for one in self._run(options, yaml.safe_dump_all(objects))}

    def _run(self, arguments, text):
        done = subprocess.run(
            [self._binary, *map(str, arguments)], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
