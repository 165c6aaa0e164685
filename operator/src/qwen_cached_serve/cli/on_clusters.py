"""Commands about what runs in a cluster.

Options here, work in the modules beside, each imported only by the command that needs it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.options import (
    Context,
    Kubeconfig,
    Namespace,
    Output,
    OutputOption,
    print_json,
    print_lines,
)

app = typer.Typer()
cache = typer.Typer(no_args_is_help=True, help="Look at stores behind the pods' memory (spec.cache.l2).")
app.add_typer(cache, name="cache")


def _where(name: str | None, namespace: str, all_namespaces: bool) -> str | None:
    """Return the namespace to look at, None for all."""
    if name and all_namespaces:
        raise CliError("-A with a name: names are unique in one namespace only; give -n NAMESPACE instead")
    return None if all_namespaces else namespace


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="one resource; all of the namespace when not given")] = None,
    namespace: Namespace = "default",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="resources of all namespaces")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how resources are doing (reads the cluster)."""
    from qwen_cached_serve.cli import statuses
    from qwen_cached_serve.kube.connection import Origin

    resources = statuses.fetch(Origin(kubeconfig, context), _where(name, namespace, all_namespaces), name)
    if output is Output.JSON:
        print_json(resources)
    elif name:
        print_lines(statuses.detail(resources[0]))
    elif resources:
        print_lines(statuses.table(resources))
    else:
        where = "any namespace" if all_namespaces else f"namespace {namespace}"
        print(f"no QwenCachedServe in {where}", file=sys.stderr)


@app.command()
def top(
    name: Annotated[str | None, typer.Argument(help="one resource; all of the namespace when not given")] = None,
    namespace: Namespace = "default",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="pods of all namespaces")] = False,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="go on until interrupted")] = False,
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="seconds between two readings")] = 2.0,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what the pods are doing now: N, requests, hit rates, L1 and L2 (reads pods through the API server)."""
    from qwen_cached_serve.cli import top_output, topping
    from qwen_cached_serve.cli.cluster import run
    from qwen_cached_serve.kube.connection import Origin

    where = _where(name, namespace, all_namespaces)

    async def show() -> None:
        found = topping.rounds(Origin(kubeconfig, context), where, name, interval)
        async for rows in found:
            if output is Output.JSON:
                print_json([row.as_json() for row in rows], always_list=True)
            elif rows:
                print_lines(top_output.table(rows))
            else:
                print("no pods", file=sys.stderr)
            if not watch:
                break
            print(flush=True)
        await found.aclose()

    try:
        run(show())
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@cache.command("list")
def cache_list(
    path: Annotated[str | None, typer.Option(help="folder of a Filesystem tier, mounted here")] = None,
    names: Annotated[
        str | None, typer.Option(help="file with names of buckets or keys of another tier, - for standard input")
    ] = None,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List namespaces of a store: in use by a resource of this cluster, or not. Deletes nothing."""
    from qwen_cached_serve.cli import cache_list as stores
    from qwen_cached_serve.kube.connection import Origin

    rows = stores.listed(Origin(kubeconfig, context), path, names)
    if output is Output.JSON:
        print_json([stores.as_json(row) for row in rows], always_list=True)
    else:
        print_lines(stores.table(rows, store=bool(path or names)))


@app.command()
def history(
    name: Annotated[str, typer.Argument(help="the resource")],
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the stored revisions of a resource, newest first (reads the cluster)."""
    from qwen_cached_serve.cli import history as revisions
    from qwen_cached_serve.kube.connection import Origin

    stored = revisions.fetch(Origin(kubeconfig, context), namespace, name)
    if output is Output.JSON:
        print_json(revisions.as_json(stored), always_list=True)
    else:
        print_lines(revisions.table(stored))


@app.command()
def rollback(
    name: Annotated[str, typer.Argument(help="the resource")],
    to: Annotated[
        int | None, typer.Option(help="number of a revision (qcs history); the one before when not given")
    ] = None,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Hold a resource's pods at a former revision until its spec changes (writes an annotation)."""
    from qwen_cached_serve.cli import rollback as rolling
    from qwen_cached_serve.kube.connection import Origin

    print(rolling.roll_back(Origin(kubeconfig, context), namespace, name, to))


@app.command()
def restart(
    name: Annotated[str, typer.Argument(help="the resource")],
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Replace a resource's pods, as its rollout settings say (writes an annotation)."""
    import datetime as dt

    from qwen_cached_serve.cli import restart as restarting
    from qwen_cached_serve.kube.connection import Origin

    print(restarting.restart(Origin(kubeconfig, context), namespace, name, dt.datetime.now(dt.UTC)))
