"""Kubeconfig files: one identity each, certificate authority embedded."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml


def write(path: Path, cluster: str, server: str, ca: Path, user: str, token: str) -> None:
    """Write a kubeconfig whose only context is named ``cluster``; readable by the owner only."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user, "namespace": "default"}}],
        "current-context": cluster,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
