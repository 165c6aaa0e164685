"""`python -m demo`: see `make demo`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from demo import cluster
from demo.narrate import Narrator
from demo.report import Report
from demo.shell import ROOT, DemoError
from demo.steps import Demo, plan

REPORT = ROOT / "build" / "demo" / "report.json"


def main(argv: list[str] | None = None) -> int:
    """Run the demo; 0 when every step ended as it must."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="The main job, shown for real.")
    parser.add_argument(
        "--cluster", choices=["local", "existing"], default="local", help="where to run (default: local)"
    )
    parser.add_argument("--kubeconfig", help="kubeconfig of an existing cluster (default: KUBECONFIG, ~/.kube/config)")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the figures go as JSON")
    parser.add_argument("--clean", action="store_true", help="take down what the demo started, then end")
    options = parser.parse_args(argv)
    narrator = Narrator()
    try:
        if options.clean:
            return clean(options.cluster, options.kubeconfig, narrator)
        return run(options.cluster, options.kubeconfig, options.report, narrator)
    except DemoError as error:
        print(f"\nThe demo stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nInterrupted. `make demo` starts again from here, `make demo-clean` takes everything down.",
            file=sys.stderr,
        )
        return 130


def run(where: str, kubeconfig: str | None, report_path: Path, narrator: Narrator) -> int:
    """Every step in order; the cluster stays up for going on by hand."""
    report = Report()
    plan(narrator, report)
    narrator.step("A cluster: " + ("made here from source" if where == "local" else "the current context"))
    place = cluster.local(narrator) if where == "local" else cluster.existing(kubeconfig)
    demo = Demo(place, narrator, report)
    demo.install_operator()
    demo.reset()
    demo.serve()
    demo.prompts()
    demo.edit()
    demo.simulated_gpus()
    demo.delete()
    report.total_seconds = narrator.elapsed()
    report.write(report_path)
    print(f"\nSummary\n{report.summary()}\n\nFigures: {report_path}")
    if where == "local":
        kubectl = Path(sys.executable).with_name("kubectl")
        print(f"Go on by hand:   export KUBECONFIG={place.kubeconfig}; {kubectl} get qcs -A")
        print("Take it down:    make demo-clean")
    else:
        print("Take it down:    make demo-clean CLUSTER=existing")
    return 0


def clean(where: str, kubeconfig: str | None, narrator: Narrator) -> int:
    """Take down what the demo started."""
    if where == "local":
        cluster.remove_local()
    else:
        Demo(cluster.existing(kubeconfig), narrator, Report()).remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
