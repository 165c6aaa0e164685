"""Which of the user's variables differ from pod to pod, and which the probe cannot see: both matter to the identity."""

from __future__ import annotations

from qwen_cached_serve.api.v1alpha1.environment import EnvVar

_FIELD = "a field of the pod"


def pod_variables(env: tuple[EnvVar, ...]) -> tuple[str, ...]:
    """Names of variables that are fields of the pod itself, or made of such as in `tcp://$(POD_IP)`."""
    found: list[str] = []
    for variable in env:
        source, text = variable.value_from, variable.value or ""
        if (source and source.field_ref) or any(f"$({name})" in text for name in found):
            found.append(variable.name)
    return tuple(found)


def visible_to_the_probe(env: tuple[EnvVar, ...]) -> tuple[str, ...]:
    """The cache server's variables as `NAME=value`; what another object holds stands there by that object's name."""
    fields = pod_variables(env)
    return tuple(f"{one.name}={_FIELD if one.name in fields else _origin(one)}" for one in env)


def _origin(variable: EnvVar) -> str:
    source = variable.value_from
    reference = source and (source.secret_key_ref or source.config_map_key_ref)
    return f"key {reference.key} of {reference.name}" if reference else variable.value or ""
