"""Release numbers of vLLM and LMCache, compared as numbers.

Image tags and distributions write them in several ways (`v0.32.0`, `0.32.0+cpu`, `v0.32.0-cu129`, `0.5.7rc2`); only
major, minor and patch decide any rule here.
"""

from __future__ import annotations

import re

_RELEASE = re.compile(r"^v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")

Release = tuple[int, int, int]


def parse_release(text: str) -> Release | None:
    """Read `major.minor[.patch]` from the start of a version or image tag; None when it is not a release number."""
    match = _RELEASE.match(text.strip())
    if match is None:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


def release_of_image(image: str) -> Release | None:
    """Read the release from an image's tag (`registry/vllm-openai:v0.32.0@sha256:…`); None without a telling tag."""
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    _, colon, tag = name.partition(":")
    return parse_release(tag) if colon else None


_CUDA = re.compile(r"(?:^|-)cu(\d\d)\d(?:-|$)")


def cuda_of_image(image: str) -> int | None:
    """Read the major CUDA version from an image's tag (`v0.33.0-cu129`); None when the tag does not tell."""
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    found = _CUDA.search(name.partition(":")[2])
    return int(found.group(1)) if found else None
