"""Reading resources from files: YAML or JSON, several documents a file, `-` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qwen_cached_serve.api.v1alpha1 import GROUP, KIND
from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.render.yaml_text import load_all


@dataclass(frozen=True, slots=True)
class Document:
    """One document and where it came from."""

    source: str
    data: Any

    @property
    def ours(self) -> bool:
        """Whether it is meant to be a QwenCachedServe, of whatever version."""
        if not isinstance(self.data, dict):
            return False
        group = str(self.data.get("apiVersion", "")).partition("/")[0]
        return self.data.get("kind") == KIND or group == GROUP

    @property
    def label(self) -> str:
        """File and name, for messages."""
        metadata = self.data.get("metadata") if isinstance(self.data, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return f"{self.source}: {name}" if name else self.source


def read_documents(files: Iterable[str]) -> list[Document]:
    """Read all documents of all files.

    Raises:
        CliError: a file that cannot be read or is not YAML.

    """
    return [document for file in files for document in _read(file)]


def read_resources(file: str) -> list[Document]:
    """Read the QwenCachedServe documents of one file; others beside them are skipped.

    Raises:
        CliError: there is none, or the file cannot be read.

    """
    documents = [document for document in _read(file) if document.ours]
    if not documents:
        raise CliError(f"{file}: holds no {KIND}; write apiVersion: {GROUP}/v1alpha1 and kind: {KIND}")
    return documents


def _read(file: str) -> list[Document]:
    try:
        text = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CliError(f"{file}: cannot be read: {reason}") from error
    try:
        documents = load_all(text)
    except yaml.YAMLError as error:
        raise CliError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    source = "standard input" if file == "-" else file
    return [Document(source, data) for data in documents]
