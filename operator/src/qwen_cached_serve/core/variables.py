"""Which of the user's variables differ from pod to pod, and which the probe cannot see: both matter to the identity."""

from __future__ import annotations

import re

from qwen_cached_serve.api.v1alpha1.environment import EnvVar

NODE_NAME = "QCS_NODE_NAME"
"""The operator's own variable in every container, a field of the pod: users' values may refer to it."""
_FIELD = "a field of the pod"
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
"""As Kubernetes expands it: `$$` stands for `$`, so `$$(NAME)` is no reference."""


def pod_variables(env: tuple[EnvVar, ...]) -> tuple[str, ...]:
    """Names of variables that are fields of the pod itself, or made of such as in `tcp://$(POD_IP)`."""
    found: list[str] = []
    for variable in env:
        source = variable.value_from
        if (source and source.field_ref) or not _references(variable.value or "").isdisjoint((NODE_NAME, *found)):
            found.append(variable.name)
    return tuple(found)


def _references(text: str) -> set[str]:
    return {match[1] for match in _REFERENCE.finditer(text) if match[1] is not None}


def visible_to_the_probe(env: tuple[EnvVar, ...]) -> tuple[str, ...]:
    """The cache server's variables as `NAME=value`; what another object holds stands there by that object's name."""
    fields = pod_variables(env)
    return tuple(f"{one.name}={_FIELD if one.name in fields else _origin(one)}" for one in env)


def _origin(variable: EnvVar) -> str:
    source = variable.value_from
    reference = source and (source.secret_key_ref or source.config_map_key_ref)
    return f"key {reference.key} of {reference.name}" if reference else variable.value or ""
