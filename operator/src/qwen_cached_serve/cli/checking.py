"""`qcs validate`: every reason why a resource would be refused, by the API server or by the operator, and warnings."""

from __future__ import annotations

from dataclasses import dataclass

from qwen_cached_serve.api.v1alpha1 import GROUP, KIND
from qwen_cached_serve.api.validate import parse
from qwen_cached_serve.cli.documents import Document, read_documents
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.cli.refusals import REFUSALS, reasons
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve


@dataclass(frozen=True, slots=True)
class Checked:
    """One resource and what is wrong with it."""

    label: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What the operator would note in the condition `SpecAccepted`."""


def check_files(files: list[str]) -> list[Checked]:
    """Judge all resources of all files; documents of other kinds beside them are skipped.

    Raises:
        CliError: a file that cannot be read, or one without any resource.

    """
    checked = []
    for file in files:
        documents = read_documents([file])
        ours = [document for document in documents if document.ours]
        if not ours:
            raise CliError(f"{file}: holds no {KIND}; write apiVersion: {GROUP}/v1alpha1 and kind: {KIND}")
        checked += [_judged(document) for document in ours]
    return checked


def _judged(document: Document) -> Checked:
    try:
        # What the API server cannot know, resolving tells: the operator answers that with SpecAccepted=False.
        resolved = resolve(parse(document.data), OperatorDefaults())
    except REFUSALS as error:
        return Checked(document.label, problems=reasons(error))
    return Checked(document.label, warnings=resolved.warnings)
