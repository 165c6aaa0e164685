"""`qcs render`: the manifests of a file's resources as one YAML stream."""

from __future__ import annotations

from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.cli.documents import Document, read_resources
from qwen_cached_serve.cli.refusals import told_as_errors
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
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
    with told_as_errors(document.label, RenderError):
        return render_children(children(resolve(parse(document.data), defaults), bundle.files()))
