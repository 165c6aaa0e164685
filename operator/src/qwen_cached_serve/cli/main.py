"""The command line `qcs`, also `kubectl qcs`; its commands are in `on_files` and `on_clusters`."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from qwen_cached_serve.cli import on_clusters, on_files
from qwen_cached_serve.cli.errors import CliError

app = typer.Typer(
    name="qcs",
    help="Plan, render, check, compare, watch and roll QwenCachedServe resources.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(on_files.app)
app.add_typer(on_clusters.app)


def main() -> None:
    """Run the command line; errors that the user can change are one line each."""
    # As kubectl's plugin the program is called by the path of its file.
    name = "kubectl qcs" if Path(sys.argv[0]).name.startswith("kubectl-") else "qcs"
    try:
        app(prog_name=name)
    except CliError as error:
        print(f"qcs: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        # `qcs plan … | head`: nobody reads any more. Python would complain again when it closes stdout.
        sys.stdout = None
        sys.exit(0)


if __name__ == "__main__":
    main()
