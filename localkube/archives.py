"""What an image archive holds, as its own index says."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

_NAME = "org.opencontainers.image.ref.name"


def image_digests(archive: Path) -> dict[str, str]:
    """Name → manifest digest of the images in an OCI archive; empty for a Docker archive or one that cannot be read."""
    try:
        with tarfile.open(archive) as opened:
            member = opened.extractfile("index.json")
            manifests = json.load(member)["manifests"] if member else []
    except (OSError, KeyError, ValueError, tarfile.TarError):
        return {}
    return {m["annotations"][_NAME]: str(m["digest"]) for m in manifests if _NAME in m.get("annotations", {})}
