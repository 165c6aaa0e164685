"""`qcs render`: the manifests of a file's resources as one YAML stream."""

from __future__ import annotations

from qwen_cached_serve.api.validate import InvalidResource, parse
from qwen_cached_serve.cli.documents import Document, read_resources
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.core.budget import BudgetError
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import ResolveError, resolve
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.render.manifests import Manifest, RenderError, render_children
from qwen_cached_serve.render.yaml_text import dump_all


def render_documents(file: str, namespace: str | None, defaults: OperatorDefaults) -> str:
    """Render every resource of a file; without an owner reference, since a file's resource has no uid.

    Raises:
        CliError: a resource that would be refused.

    """
    manifests: list[Manifest] = []
    for document in read_resources(file):
        manifests += _render(document, namespace, defaults)
    return dump_all(manifests)


def _render(document: Document, namespace: str | None, defaults: OperatorDefaults) -> list[Manifest]:
    metadata = document.data.get("metadata")
    if namespace and isinstance(metadata, dict) and not metadata.get("namespace"):
        metadata["namespace"] = namespace
    try:
        return render_children(children(resolve(parse(document.data), defaults), bundle.files()))
    except InvalidResource as error:
        raise CliError("\n".join(f"{document.label}: {problem}" for problem in error.problems)) from error
    except (ResolveError, BudgetError, RenderError) as error:
        raise CliError(f"{document.label}: {error}") from error
