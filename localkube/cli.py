"""The command line: ``python -m localkube build | up | down | status | load-image | kubeconfig | logs | prereqs``."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from localkube import build as builds
from localkube import cluster as clusters
from localkube import modules, prereqs
from localkube.cluster import Cluster, Options
from localkube.errors import LocalKubeError
from localkube.process import tail

DEFAULT_PAUSE = Path("build/images/pause.tar")

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Name = Annotated[str, typer.Option("--name", help="Name of the cluster.")]
Version = Annotated[str, typer.Option("--version", help=f"Kubernetes: {', '.join(modules.KUBERNETES_VERSIONS)}.")]


def say(line: str) -> None:
    """Progress goes to standard error, so that standard output can be used by scripts."""
    print(line, file=sys.stderr, flush=True)


@app.callback()
def _group() -> None:
    """A real Kubernetes on this machine: control plane, real node (root) and simulated nodes."""


@app.command()
def build(
    version: Version = modules.DEFAULT_VERSION,
    module: Annotated[
        list[str] | None,
        typer.Option(
            "--module",
            help="Only this one: kubernetes, etcd, containerd, kwok; helm, promtool, gitops-judge (repeatable).",
        ),
    ] = None,
) -> None:
    """Build the binaries that are not built yet."""
    chosen = [modules.named(name, version) for name in module] if module else modules.all_modules(version)
    for one in chosen:
        print(builds.build(one, say))


@app.command()
def up(
    name: Name = Options.name,
    version: Version = modules.DEFAULT_VERSION,
    node: Annotated[bool, typer.Option("--node", help="With a real node that runs pods (root).")] = False,
    kwok: Annotated[int, typer.Option("--kwok", help="Number of simulated nodes.")] = 0,
    kwok_stages: Annotated[list[Path] | None, typer.Option("--kwok-stages", help="Further Stage files.")] = None,
    gpus: Annotated[int, typer.Option("--gpus", help="nvidia.com/gpu shown on the real node.")] = 0,
    pause_archive: Annotated[
        Path, typer.Option("--pause-archive", help="OCI archive of localhost/pause:1.")
    ] = DEFAULT_PAUSE,
) -> None:
    """Bring a cluster up, or repair it; prints the path of its kubeconfig."""
    options = Options(
        name=name,
        version=version,
        node=node,
        simulated_nodes=kwok,
        stages=tuple(str(p.absolute()) for p in kwok_stages or ()),
        gpus=gpus,
        pause_archive=str(pause_archive.absolute()) if node else "",
    )
    print(clusters.up(options, say).kubeconfig)


@app.command()
def down(name: Name = Options.name) -> None:
    """End a cluster and remove everything of it."""
    if not clusters.down(name, say):
        say(f"there is no cluster {name}")


@app.command()
def status(
    name: Annotated[str | None, typer.Option("--name", help="Only this cluster.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show clusters and their components; exit status 1 when one of them is not healthy."""
    shown = [_existing(name)] if name else clusters.listed()
    if as_json:
        print(json.dumps([_as_json(c) for c in shown], indent=1))
    else:
        _print_table(shown)
    if not all(c.healthy() for c in shown):
        raise typer.Exit(1)


@app.command("load-image")
def load_image(archive: Path, name: Name = Options.name) -> None:
    """Import an OCI or Docker archive into the real node."""
    began = time.monotonic()
    say(f"importing {archive} ({archive.stat().st_size / 1e6:.0f} MB)" if archive.is_file() else f"importing {archive}")
    _existing(name).load_image(archive, say)
    say(f"imported after {time.monotonic() - began:.1f} s")


@app.command()
def kubeconfig(name: Name = Options.name) -> None:
    """Print the path of a cluster's kubeconfig."""
    print(_existing(name).kubeconfig)


@app.command()
def logs(
    component: Annotated[str | None, typer.Argument(help="Such as kubelet; without it, the files are listed.")] = None,
    name: Name = Options.name,
    lines: Annotated[int, typer.Option("--tail", help="How many of the last lines.")] = 50,
) -> None:
    """Show the last lines of a component's log."""
    cluster = _existing(name)
    known = {c.name: c.log for c in cluster.components()}
    if component is None:
        print("\n".join(str(path) for path in known.values()))
    elif component in known:
        print("\n".join(tail(known[component], lines)))
    else:
        raise LocalKubeError(f"Cluster {name} has no component {component!r}.", f"Choose from {', '.join(known)}.")


@app.command("prereqs")
def prerequisites(
    purpose: Annotated[
        list[str] | None, typer.Option("--for", help=f"Of {', '.join(prereqs.PURPOSES)} (repeatable); all by default.")
    ] = None,
    install: Annotated[bool, typer.Option("--install", help="Install the missing packages (root).")] = False,
) -> None:
    """List what this machine lacks; exit status 1 when something does."""
    wanted = [p for p in prereqs.PURPOSES if not purpose or p in purpose]
    if unknown := set(purpose or ()) - set(prereqs.PURPOSES):
        raise LocalKubeError(f"--for {', '.join(unknown)} is not known.", f"Choose from {', '.join(prereqs.PURPOSES)}.")
    lacking = prereqs.missing(wanted)
    if lacking and install:
        prereqs.install(lacking, say)
        lacking = prereqs.missing(wanted)
    for need in lacking:
        print(f"{need.program}: {need.why} ({need.purpose}); Debian package {need.package}")
    if lacking:
        say(prereqs.install_line(lacking))
        raise typer.Exit(1)


def _existing(name: str) -> Cluster:
    cluster = clusters.find(name)
    if cluster is None:
        known = ", ".join(c.name for c in clusters.listed()) or "none"
        raise LocalKubeError(f"There is no cluster {name} (there is: {known}).", "Bring it up with `up`.")
    return cluster


def _as_json(cluster: Cluster) -> dict[str, object]:
    return {
        "name": cluster.name,
        "healthy": cluster.healthy(),
        "version": cluster.options.version,
        "server": cluster.server,
        "kubeconfig": str(cluster.kubeconfig),
        "node": cluster.node_name,
        "nodeAddress": cluster.node_address,
        "simulatedNodes": cluster.options.simulated_nodes,
        "components": [
            {"name": c.name, "pid": c.pid, "running": c.running, "log": str(c.log)} for c in cluster.components()
        ],
    }


def _print_table(shown: list[Cluster]) -> None:
    if not shown:
        print("no clusters")
    for cluster in shown:
        kinds = ["real node" if cluster.options.node else "", f"{cluster.options.simulated_nodes} simulated nodes"]
        health = "healthy" if cluster.healthy() else "NOT healthy"
        print(f"{cluster.name}: Kubernetes {cluster.options.version}, {', '.join(filter(None, kinds))}, {health}")
        print(f"  {cluster.server}  KUBECONFIG={cluster.kubeconfig}")
        table = Table(box=None, pad_edge=True)
        for column in ("COMPONENT", "PID", "STATE", "LOG"):
            table.add_column(column, overflow="fold")
        for c in cluster.components():
            table.add_row(c.name, str(c.pid), "running" if c.running else "DEAD", str(c.log))
        Console().print(table)


class _InterruptedError(BaseException):
    """Asked to end. No KeyboardInterrupt, since typer would turn that into its own message and exit status."""


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise _InterruptedError(signal.Signals(number).name)


def main() -> NoReturn:
    """Run the command line; errors are one message on standard error."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)  # so that an `up` that is asked to end takes down what it started
    try:
        app()
    except LocalKubeError as wrong:
        say(f"localkube: {wrong}")
        sys.exit(1)
    except _InterruptedError as ended:
        say(f"localkube: ended by {ended}")
        sys.exit(130)
    sys.exit(0)
