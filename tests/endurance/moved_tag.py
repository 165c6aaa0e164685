"""An image's archive with one file more and the same name: what a rebuilt image under a moved tag is to a node.

OCI image-spec (image-layout, config): a layer more is a blob, an entry in the manifest and a diff id in the config.
"""

import hashlib
import io
import json
import tarfile


def named(archive, target, name):
    """Copy an archive under another name of its image."""
    return _written(archive, target, name, {}, lambda manifest, config: (manifest, config))


def patched(archive, target, name, path, text):
    """Copy an archive under a name, with the file `path` (relative to the root) put in by a layer of its own."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo(path)
        entry.mode, entry.size = 0o644, len(text.encode())
        tar.addfile(entry, io.BytesIO(text.encode()))
    data = layer.getvalue()

    def change(manifest, config):
        diffs = [*config["rootfs"]["diff_ids"], _digest(data)]
        layers = [*manifest["layers"], _pointer(data, "application/vnd.oci.image.layer.v1.tar")]
        return manifest | {"layers": layers}, config | {"rootfs": config["rootfs"] | {"diff_ids": diffs}}

    return _written(archive, target, name, {_digest(data): data}, change)


def read(archive, path):
    """Return a file of the image as the last layer that has it says."""
    with tarfile.open(archive) as tar:
        (entry,) = json.load(tar.extractfile("index.json"))["manifests"]
        manifest = json.load(tar.extractfile(_blob(entry["digest"])))
        for layer in reversed(manifest["layers"]):
            with tarfile.open(fileobj=tar.extractfile(_blob(layer["digest"]))) as opened:
                for member in opened:
                    if member.name.removeprefix("./") == path:
                        return opened.extractfile(member).read().decode()
    raise FileNotFoundError(path)


def _written(archive, target, name, blobs, change):
    with tarfile.open(archive) as old, tarfile.open(target, "w") as new:
        index = json.load(old.extractfile("index.json"))
        (entry,) = index["manifests"]
        manifest = json.load(old.extractfile(_blob(entry["digest"])))
        config = json.load(old.extractfile(_blob(manifest["config"]["digest"])))
        manifest, config = change(manifest, config)
        if blobs:
            # Some builders repeat the history; it has to have an entry for every layer or none.
            config.pop("history", None)
            config_text = json.dumps(config).encode()
            manifest["config"] = _pointer(config_text, manifest["config"]["mediaType"])
            blobs = blobs | {_digest(config_text): config_text}
        text = json.dumps(manifest).encode()
        pointer = _pointer(text, entry["mediaType"]) | {"annotations": {"org.opencontainers.image.ref.name": name}}
        files = {_blob(digest): data for digest, data in {**blobs, _digest(text): text}.items()}
        files["index.json"] = json.dumps(index | {"manifests": [pointer]}).encode()
        for member in old:
            if member.name not in files:
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
        for path, data in files.items():
            made = tarfile.TarInfo(path)
            made.size = len(data)
            new.addfile(made, io.BytesIO(data))
    return target


def _pointer(data, kind):
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}


def _blob(digest):
    return f"blobs/{digest.replace(':', '/')}"


def _digest(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
