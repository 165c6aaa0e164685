"""Rules about volumes and where they are mounted."""

from __future__ import annotations

import re

from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.rules.shapes import pod
from qwen_cached_serve.inpod.facts import CACHE_DIR, CODE_DIR, L2_DIR, MODEL_DIR, STATE_DIR

VOLUME_PREFIX = "qcs-"
"""Names of the operator's own volumes begin with this."""
RESERVED_PATHS = (CODE_DIR, STATE_DIR, CACHE_DIR, MODEL_DIR, L2_DIR, "/tmp", "/dev/shm")  # noqa: S108 (names, not files made here)
"""Folders of the operator in every container."""
_SOURCES = ("configMap", "secret", "emptyDir", "persistentVolumeClaim", "hostPath", "nfs", "csi", "image")

_MOUNT = r"(/[^/:]+)+/?"
_PATHS = (
    *(f"spec.pod.volumes[].{source}.items[].path" for source in ("configMap", "secret")),
    "spec.pod.volumeMounts[].subPath",
    "spec.pod.securityContext.seccompProfile.localhostProfile",
    "spec.cache.l2[].filesystem.path",
)


def _mounts_known(pod: Node) -> bool:
    names = {volume["name"] for volume in pod.get("volumes", ())}
    return all(mount["name"] in names for mount in pod.get("volumeMounts", ()))


def _mount_free(mount: Node) -> bool:
    path = mount["mountPath"]
    return (
        re.fullmatch(_MOUNT, path) is not None
        and not {"..", "."} & set(path.split("/"))
        and not any(path == own or path.startswith(f"{own}/") for own in RESERVED_PATHS)
    )


def _mounted(path: str) -> dict[str, Node]:
    return pod(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=[{"name": "v", "mountPath": path}])


def _sub_path(path: str) -> dict[str, Node]:
    mount = {"name": "v", "mountPath": "/data", "subPath": path}
    return pod(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=[mount])


RULES = (
    Rule(
        name="pod.volumes-one-source",
        scopes=("spec.pod.volumes[]",),
        cel=f"[{', '.join(f'has(self.{source})' for source in _SOURCES)}].filter(set, set).size() == 1",
        holds=lambda volume: sum(source in volume for source in _SOURCES) == 1,
        problem="a volume needs exactly one source",
        remedy=f"keep one of {', '.join(_SOURCES)}",
        accepts=(pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "s"}}]),),
        rejects=(
            pod(volumes=[{"name": "v"}]),
            pod(volumes=[{"name": "v", "emptyDir": {}, "configMap": {"name": "c"}}]),
        ),
    ),
    Rule(
        name="pod.volumes-own-names",
        scopes=("spec.pod.volumes[]",),
        cel=f"!self.name.startsWith('{VOLUME_PREFIX}')",
        holds=lambda volume: not volume["name"].startswith(VOLUME_PREFIX),
        field=".name",
        problem=f"names of volumes that begin with {VOLUME_PREFIX} are the operator's own",
        remedy="choose another name",
        accepts=(pod(volumes=[{"name": "q", "emptyDir": {}}]),),
        rejects=(pod(volumes=[{"name": "qcs-state", "emptyDir": {}}]),),
    ),
    Rule(
        name="pod.volumeMounts-known",
        scopes=("spec.pod",),
        cel=(
            "!has(self.volumeMounts) || self.volumeMounts.all(mount, has(self.volumes) && "
            "self.volumes.exists(volume, volume.name == mount.name))"
        ),
        holds=_mounts_known,
        field=".volumeMounts",
        problem="a mount names a volume that pod.volumes does not have",
        remedy="add the volume to pod.volumes or correct the name",
        accepts=(_mounted("/data"),),
        rejects=(pod(volumeMounts=[{"name": "v", "mountPath": "/data"}]),),
    ),
    Rule(
        name="pod-relative-paths",
        scopes=_PATHS,
        cel="!self.startsWith('/') && !self.split('/').exists(part, part == '..')",
        holds=lambda path: not path.startswith("/") and ".." not in path.split("/"),
        problem="the path is absolute or leaves its folder",
        remedy='write a relative path without ".."',
        accepts=(_sub_path("a/b"), _sub_path("..a")),
        rejects=(
            _sub_path("/a"),
            _sub_path("a/../../b"),
            pod(volumes=[{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}]),
        ),
    ),
    Rule(
        name="pod.volumes-absolute-paths",
        scopes=("spec.pod.volumes[].hostPath.path", "spec.pod.volumes[].nfs.path"),
        cel="!self.split('/').exists(part, part == '..')",
        holds=lambda path: ".." not in path.split("/"),
        problem='the path has ".." in it',
        remedy="write the path that is meant",
        accepts=(pod(volumes=[{"name": "v", "hostPath": {"path": "/data"}}]),),
        rejects=(pod(volumes=[{"name": "v", "nfs": {"server": "s", "path": "/a/../b"}}]),),
    ),
    Rule(
        name="pod.volumeMounts-path",
        scopes=("spec.pod.volumeMounts[]",),
        cel=(
            f"self.mountPath.matches({quote(f'^{_MOUNT}$')}) && "
            "!self.mountPath.split('/').exists(part, part == '..' || part == '.') && "
            f"!{list(RESERVED_PATHS)}.exists(own, self.mountPath == own || self.mountPath.startsWith(own + '/'))"
        ),
        holds=_mount_free,
        field=".mountPath",
        problem="the path is the root, not canonical, or one of the operator's own folders",
        remedy=f"choose a plain absolute path outside {', '.join(RESERVED_PATHS)}",
        accepts=(_mounted("/data/"), _mounted("/opt/qcs-extra"), _mounted("/var/cache")),
        rejects=tuple(
            _mounted(path) for path in ("/", RESERVED_PATHS[-1], "/opt/qcs/", "/model/x", "/a/../opt/qcs", "/a//b")
        ),
    ),
)
