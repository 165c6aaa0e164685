"""Version v1alpha1 of the resource, one module per concern; with no conversion webhook its shape is v1's."""

from qwen_cached_serve.api.v1alpha1.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION, QwenCachedServe, Spec
from qwen_cached_serve.api.v1alpha1.status import Status

__all__ = ["API_VERSION", "GROUP", "KIND", "PLURAL", "VERSION", "QwenCachedServe", "Spec", "Status"]
