"""What the operator as a whole is configured with, and what it derives when a resource leaves a choice open."""

from __future__ import annotations

from dataclasses import dataclass, field

from qwen_cached_serve.core.beside import Readers
from qwen_cached_serve.core.versions import release_of_image

ENGINE_IMAGE = "vllm/vllm-openai:v0.32.0"
"""GPU image of last resort; its LMCache floats, so an operator is configured with one that pins both."""
ENGINE_CPU_IMAGE = "localhost/qcs-engine-cpu:0.32.0-0.5.6"
"""CPU image as `make images` names it; there is no public one with LMCache."""


@dataclass(frozen=True, slots=True)
class OperatorDefaults:
    """Settings of the operator that reach the children of resources which do not say otherwise."""

    engine_image: str = ENGINE_IMAGE
    engine_cpu_image: str = ENGINE_CPU_IMAGE
    readers: Readers = field(default_factory=Readers)

    def image_for(self, accelerator: str) -> str:
        """Return the image for `GPU` or `CPU`."""
        return self.engine_cpu_image if accelerator == "CPU" else self.engine_image


def vllm_version_of(image: str) -> str | None:
    """Read vLLM's release from the tag of an image that is named after it; None when the tag tells nothing.

    Only images called vllm-something are read: another product's tag is that product's version.
    """
    name = image.split("@", 1)[0].rsplit("/", 1)[-1].split(":", 1)[0]
    release = release_of_image(image)
    if release is None or not ("vllm" in name or name.startswith("qcs-engine")):
        return None
    return ".".join(str(part) for part in release)
