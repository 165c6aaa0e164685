"""The operator's chart as a release: a process of this checkout in place of its image, and what serves meanwhile."""

import signal

from tests.cluster.operator_support import OperatorProcess


class ChartOperators:
    """Operators with settings and account of the chart's Deployment as the API server has it, one at a time.

    `folder` gets the kubeconfigs, `logs` the logs; `sources` starts the operator as a command of its own, as
    `OperatorProcess` has it.
    """

    def __init__(self, cluster, namespace, release, *, folder, logs, sources=None):
        self.cluster, self.namespace, self.release = cluster, namespace, release
        self._folder, self._logs, self._sources = folder, logs, sources
        self._running = []

    def deployment(self):
        return self.cluster.get("deployment", f"{self.release}-operator", "-n", self.namespace)

    def image(self):
        return self.deployment()["spec"]["template"]["spec"]["containers"][0]["image"]

    async def start(self):
        """End the former one, start the next; ready when this returns."""
        self.stop()
        pod = self.deployment()["spec"]["template"]["spec"]
        number = len(self._running)
        kubeconfig = self.cluster.kubeconfig_for(
            self.namespace, pod["serviceAccountName"], self._folder / f"operator-{number}"
        )
        settings = [
            f"--{entry['name'].removeprefix('QCS_').lower().replace('_', '-')}={entry['value']}"
            for entry in pod["containers"][0]["env"]
            if entry["name"].startswith("QCS_") and "value" in entry
        ]
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{self.namespace}.{number}.log"
        log.unlink(missing_ok=True)
        made = OperatorProcess(log, kubeconfig, [*settings, "--lease-namespace", self.namespace], self._sources)
        self._running.append(made)
        await made.wait_ready()
        return made

    def stop(self):
        """End it as Kubernetes would, by SIGTERM."""
        for made in self._running:
            if made.alive():
                assert made.stop() == 0

    def kill(self):
        for made in self._running:
            if made.alive():
                made.stop(signal.SIGKILL)


def lives(cluster, namespace):
    """What must not change while the operator does: pods, and how often their Deployment was changed."""
    pods = cluster.get("pods", "-n", namespace)["items"]
    deployments = cluster.get("deployments", "-n", namespace)["items"]
    return (
        {pod["metadata"]["uid"] for pod in pods},
        {item["metadata"]["name"]: item["metadata"]["generation"] for item in deployments},
    )


def seen_again(operator, namespace):
    """Lines of the operator's log about resources of that namespace that it has looked at."""
    return [line for line in operator.events("reconciled") if line.get("namespace") == namespace]
