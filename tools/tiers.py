"""
The test tiers of DESIGN §9: `python -m tools.tiers all|TIER …` (Makefile, CI).

`all` starts the long builds (Kubernetes binaries, images) first, runs what needs only Python beside them, then the
cluster tier beside the tiers of the real node (`tools.lanes`).
A tier that cannot run on this machine (no Go, no root) says so in one line and is skipped; under CI=true that fails.
Reports: build/reports/*.xml (JUnit), logs: build/logs/.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from tools import engine_env, engine_versions, lanes
from tools.background import BackgroundBuild
from tools.lanes import Outcome
from tools.pytests import BUILD, ROOT, pytest

PYTHON = sys.executable
NODE_CLUSTER = "tests"
CI_NODE_TIERS = ("node", "engine")
NODE_TIERS = (*CI_NODE_TIERS, "endurance")
"""The last takes half an hour of kills and rolls and is run by hand."""
CI_RELEASES = ("0.29.0", "0.32.0")
"""Of vLLM, for the versions tier in CI; `make test-versions` has the oldest supported line, too."""
TIERS = frozenset({"lint", "unit", "cluster", "chart", "versions", *CI_NODE_TIERS})
TWO_WORKERS = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""For tests of the node: a kubelet's waits and an engine's start use one core, each of its three processes imports vLLM
after the other. Files stay whole, since their tests share a cluster or a pod, and come in their folder's order.
"""
FOUR_WORKERS = ("-n", "4", "--dist", "worksteal")
"""For unit tests: those of the pod's processes wait most of the time, and stand side by side."""
TWO_CLUSTERS = ("-n", "2", "--dist", "worksteal")
"""For the cluster tier: its tests wait for controllers, each in a namespace of its own, each worker on its own cluster.
"""

# What the cluster tier needs comes first: containerd is only needed by the node.
CONTROL_PLANE_BUILD = [
    PYTHON,
    "-m",
    "localkube",
    "build",
    "--module",
    "etcd",
    "--module",
    "kubernetes",
    "--module",
    "kwok",
]
NODE_BUILD = [PYTHON, "-m", "localkube", "build"]
TEST_TOOLS_BUILD = [*NODE_BUILD, "--module", "helm", "--module", "gitops-judge", "--module", "promtool"]
"""Nobody waits for it: a test that comes earlier builds its own tool, under the same lock."""
IMAGES_BUILD = [PYTHON, "-m", "images.build"]
ENGINE_ENV_BUILD = [PYTHON, "-m", "tools.engine_env"]
PREREQUISITES = [PYTHON, "-m", "localkube", "prereqs", "--install"]


@dataclass
class Run:
    """One invocation: what ran how long and how it ended."""

    in_ci: bool
    outcomes: list[Outcome] = field(default_factory=list)

    def stage(self, name: str, work: Callable[[], int]) -> None:
        """Run one tier; an exit status other than zero is a failure, later tiers still run."""
        print(f"\n=== {name}", flush=True)
        begun = time.monotonic()
        try:
            outcome = "passed" if work() == 0 else "FAILED"
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name}: {error}", flush=True)
            outcome = "FAILED"
        self.outcomes.append(Outcome(name, outcome, time.monotonic() - begun))

    def built(self, name: str, wait: Callable[[], float]) -> bool:
        """Wait for builds as a stage of its own; True when they are there."""
        self.stage(name, lambda: int(wait() < 0))
        return self.outcomes[-1].result == "passed"

    def not_run(self, *names: str) -> None:
        """Note tiers whose build has failed: the table names them."""
        self.outcomes += [Outcome(name, "FAILED", 0.0) for name in names]

    def skip(self, name: str, why: str) -> None:
        """A tier that this machine cannot run: a failure in CI, a line elsewhere."""
        print(f"\n=== {name}: skipped, {why}", flush=True)
        self.outcomes.append(Outcome(name, "FAILED" if self.in_ci else "skipped", 0.0))

    def finish(self) -> int:
        """Print the table; 1 when anything failed."""
        print("\nTier        outcome    seconds")
        for outcome in self.outcomes:
            print(f"{outcome.name:<11} {outcome.result:<9} {outcome.seconds:8.0f}")
        passed = sum(outcome.result == "passed" for outcome in self.outcomes)
        failed = sum(outcome.result == "FAILED" for outcome in self.outcomes)
        skipped = len(self.outcomes) - passed - failed
        print(f"tiers: {passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
        return 1 if failed else 0


def missing_for_cluster() -> str:
    """Why the cluster tier cannot run here, or an empty string."""
    if shutil.which("go") or os.environ.get("KUBEBUILDER_ASSETS"):
        return ""
    return "no Go and no KUBEBUILDER_ASSETS: install Go 1.26.7 or newer, or set KUBEBUILDER_ASSETS"


def missing_for_node() -> str:
    """Why node and engine tiers cannot run here, or an empty string."""
    if os.geteuid() != 0:
        return "a real node needs root: run as root"
    if not shutil.which("go"):
        return "no Go (KUBEBUILDER_ASSETS holds a control plane only, containerd is built): install Go 1.26.7 or newer"
    return ""


def lint() -> int:
    """ruff, mypy and the import layers."""
    bin_dir = Path(PYTHON).parent
    commands = [
        [str(bin_dir / "ruff"), "check", "."],
        [str(bin_dir / "ruff"), "format", "--check", "."],
        [str(bin_dir / "mypy")],
        [str(bin_dir / "lint-imports"), "--no-cache"],
    ]
    return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


def unit() -> int:
    """Rules only: no cluster, no engine."""
    return pytest("unit", *FOUR_WORKERS, "-q")


def versions() -> int:
    """N on two real vLLM releases; what starts engine after engine is run by hand (`make test-versions`)."""
    for release in CI_RELEASES:
        engine_versions.ensure(release)
    return engine_versions.test(CI_RELEASES, "-m", "not slow")


def localkube(*args: str) -> str:
    """Run localkube's command line, return what it printed on standard output."""
    return subprocess.run(
        [PYTHON, "-m", "localkube", *args], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def keep_logs() -> None:
    """Copy the logs of the node cluster's components before they go with it."""
    folder = BUILD / "logs" / "node-cluster"
    folder.mkdir(parents=True, exist_ok=True)
    for path in localkube("logs", "--name", NODE_CLUSTER).splitlines():
        if Path(path).is_file():
            shutil.copy(path, folder)


def with_node_cluster(tiers: Sequence[str], run: Run) -> None:
    """One cluster with a real node for the tiers that need it; its logs stay in build/logs when something failed."""
    localkube("down", "--name", NODE_CLUSTER)
    try:
        localkube("up", "--name", NODE_CLUSTER, "--node", "--kwok", "2", "--gpus", "8")
        kubeconfig = localkube("kubeconfig", "--name", NODE_CLUSTER)
        env = {"QCS_NODE_KUBECONFIG": kubeconfig, "QCS_NODE_CLUSTER": NODE_CLUSTER}
        env["QCS_ENGINE_PYTHON"] = str(engine_env.home() / "bin" / "python")
        for tier in tiers:
            run.stage(tier, lambda tier=tier: pytest(tier, "-v", *TWO_WORKERS, env=env))  # type: ignore[misc]
    finally:
        if any(outcome.result == "FAILED" for outcome in run.outcomes):
            keep_logs()
        localkube("down", "--name", NODE_CLUSTER)


def run_here(run: Run, wanted: set[str], *, built: bool) -> None:
    """The wanted tiers one after the other; unless `built`, what they need is built beside the first."""
    cluster_gap, node_gap = missing_for_cluster(), missing_for_node()
    node_tiers = [tier for tier in NODE_TIERS if tier in wanted]
    builds = [] if built else start_builds(wanted)
    try:
        for tier, work in (("lint", lint), ("unit", unit)):
            if tier in wanted:
                run.stage(tier, work)
        if "cluster" in wanted and cluster_gap:
            run.skip("cluster", cluster_gap)
        elif "cluster" in wanted and (built or run.built("build-cluster", lambda: builds[0].wait(0))):
            run.stage("cluster", lambda: pytest("cluster", "-v", *TWO_CLUSTERS))
        if "chart" in wanted:  # its tests build helm and promtool, or say what is missing
            run.stage("chart", lambda: pytest("chart", "-q"))
        if "versions" in wanted:
            run.stage("versions", versions)
        if node_gap:
            for tier in node_tiers:
                run.skip(tier, node_gap)
        elif node_tiers and (built or run.built("build-node", lambda: wait_for_node(builds))):
            with_node_cluster(node_tiers, run)
    finally:
        for build in builds:
            build.stop()


def run_all(run: Run) -> None:
    """Every tier: the quick ones beside each other and the builds, then the cluster tier beside those of the node."""
    builds = start_builds(TIERS)
    running: list[lanes.Lane] = []

    def start(*tiers: str) -> None:
        command = [PYTHON, "-m", "tools.tiers", "--built", *tiers]
        running.append(lanes.Lane.start(tiers, command, BUILD / "logs" / "lanes"))

    try:
        start("lint")
        start("unit")
        run.outcomes += lanes.finish(running)
        running.clear()
        if missing_for_cluster() or run.built("build-cluster", lambda: builds[0].wait(0)):
            start("cluster", "chart", "versions")
        else:
            run.not_run("cluster")
            start("chart", "versions")
        if missing_for_node() or run.built("build-node", lambda: wait_for_node(builds)):
            start(*CI_NODE_TIERS)
        else:
            run.not_run(*CI_NODE_TIERS)
        run.outcomes += lanes.finish(running)
    finally:
        lanes.stop(running)
        for build in builds:
            build.stop()


def start_builds(wanted: Set[str]) -> list[BackgroundBuild]:
    """Start what the wanted tiers need and this machine can use: binaries first, images beside them."""
    needs_node = not wanted.isdisjoint(NODE_TIERS) and not missing_for_node()
    needs_cluster = needs_node or ("cluster" in wanted and not missing_for_cluster())
    if needs_cluster and os.geteuid() == 0:
        subprocess.run(PREREQUISITES, cwd=ROOT, check=True)
    builds = []
    if needs_cluster:
        chain = [CONTROL_PLANE_BUILD] + ([NODE_BUILD] if needs_node else [])
        if shutil.which("go") and not wanted.isdisjoint({"cluster", "chart"}):
            chain.append(TEST_TOOLS_BUILD)
        builds.append(BackgroundBuild("the Kubernetes binaries", chain, BUILD / "logs" / "build-localkube.log"))
    if needs_node:
        # One after the other: both install the engine's packages, and the second finds them in the cache.
        chain = [IMAGES_BUILD] + ([ENGINE_ENV_BUILD] if "engine" in wanted else [])
        builds.append(BackgroundBuild("the images", chain, BUILD / "logs" / "build-images.log"))
    return builds


def wait_for_node(builds: Sequence[BackgroundBuild]) -> float:
    """Wait for the binaries of a node and for the images; the seconds that took."""
    binaries, *images = builds
    return binaries.wait(1) + sum(build.wait() for build in images)


def main() -> int:
    """Entry point of `python -m tools.tiers`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tier", nargs="+", choices=["all", *sorted({*TIERS, *NODE_TIERS})])
    parser.add_argument("--built", action="store_true", help="what the tiers need is built already")
    parser.add_argument("--outcomes", type=Path, help="write [name, result, seconds] of each tier as JSON")
    options = parser.parse_args()
    # SIGTERM as an exception, so that the cluster and the builds are taken down on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell's background job inherits SIGINT ignored, and would pass that on to pytest.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = Run(in_ci=os.environ.get("CI") == "true")
    if "all" in options.tier:
        run_all(run)
    else:
        run_here(run, set(options.tier), built=options.built)
    if options.outcomes:
        lanes.write_outcomes(options.outcomes, run.outcomes)
    return run.finish()


if __name__ == "__main__":
    sys.exit(main())
