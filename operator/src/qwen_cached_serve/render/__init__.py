"""From computed children to manifests: Jinja2 places values in YAML, strict models check the result."""

from qwen_cached_serve.render.manifests import RenderError, render_children

__all__ = ["RenderError", "render_children"]
