"""Images for tests of a real node, made with gcc and the standard library: no registry, no image builder.

An OCI archive is a tar of JSON documents and layer tars addressed by their digests (OCI image-spec, image-layout).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

PAUSE_C = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


def compile_static(source: str, into: Path) -> Path:
    """Compile a C program without any shared library."""
    code = into.with_suffix(".c")
    code.write_text(source)
    subprocess.run(["gcc", "-static", "-O1", "-Wall", "-Werror", "-o", str(into), str(code)], check=True)
    return into


def write_archive(archive: Path, image: str, program: Path, *, user: str = "65534") -> Path:
    """Write an OCI archive of an image that holds one program, ``/run``, and starts it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("tmp", "dev", "proc", "sys"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        entry = tarfile.TarInfo("run")
        entry.mode, entry.size = 0o755, program.stat().st_size
        tar.addfile(entry, io.BytesIO(program.read_bytes()))
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = {
        "architecture": machine,
        "os": "linux",
        "config": {"Entrypoint": ["/run"], "User": user},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
    }
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, object]:
        blobs[_digest(data)] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": _digest(data), "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(layer.getvalue(), "layer.v1.tar")],
    }
    pointer = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    pointer["annotations"] = {"org.opencontainers.image.ref.name": image}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [pointer]}).encode()
    files |= {f"blobs/{digest.replace(':', '/')}": data for digest, data in blobs.items()}
    with tarfile.open(archive, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
