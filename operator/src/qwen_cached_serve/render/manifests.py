"""Rendering: children in, plain dicts out, each checked before anybody may apply it.

The gate is the same for every template: the text parses as one YAML document with no key twice, it is exactly the kind
and name that was asked for, and the strict models of the Kubernetes API take it without a change. The models also take
Python spellings (`image_pull_policy`), which the API server would drop, so the document must come back from them
unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import jinja2
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qwen_cached_serve.core.children import Children
from qwen_cached_serve.core.children.config_map import ConfigMapChild
from qwen_cached_serve.core.children.meta import Meta
from qwen_cached_serve.render import pod_monitor
from qwen_cached_serve.render.yaml_text import load_one, quote

Manifest = dict[str, Any]


class RenderError(Exception):
    """A template whose result may not be applied; names the template and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Template:
    file: str
    api_version: str
    kind: str
    model: str


_LONG_CHARACTERS = 1024

_CONFIG_MAP = _Template("configmap.yaml.j2", "v1", "ConfigMap", "V1ConfigMap")
_SERVICE_ACCOUNT = _Template("serviceaccount.yaml.j2", "v1", "ServiceAccount", "V1ServiceAccount")
_SERVICE = _Template("service.yaml.j2", "v1", "Service", "V1Service")
_NETWORK_POLICY = _Template("networkpolicy.yaml.j2", "networking.k8s.io/v1", "NetworkPolicy", "V1NetworkPolicy")
_DISRUPTION_BUDGET = _Template(
    "poddisruptionbudget.yaml.j2", "policy/v1", "PodDisruptionBudget", "V1PodDisruptionBudget"
)
_POD_MONITOR = _Template("podmonitor.yaml.j2", "monitoring.coreos.com/v1", "PodMonitor", "PodMonitor")
_DEPLOYMENT = _Template("deployment.yaml.j2", "apps/v1", "Deployment", "V1Deployment")
_REVISION = _Template("controllerrevision.yaml.j2", "apps/v1", "ControllerRevision", "V1ControllerRevision")


def render_children(children: Children) -> list[Manifest]:
    """Render all objects of one resource in the order in which they are applied.

    Raises:
        RenderError: a template's result is not the object it should be.

    """
    manifests = [_config_map(children.config_map)]
    if children.service_account:
        manifests.append(_render(_SERVICE_ACCOUNT, children.service_account, meta=children.service_account))
    manifests.append(_render(_SERVICE, children.service.meta, service=children.service))
    if children.network_policy:
        manifests.append(_render(_NETWORK_POLICY, children.network_policy.meta, policy=children.network_policy))
    if children.disruption_budget:
        budget = children.disruption_budget
        manifests.append(_render(_DISRUPTION_BUDGET, budget.meta, budget=budget))
    if children.pod_monitor:
        manifests.append(_render(_POD_MONITOR, children.pod_monitor.meta, monitor=children.pod_monitor))
    manifests.append(_render(_DEPLOYMENT, children.deployment.meta, deployment=children.deployment))
    return manifests


def _config_map(config_map: ConfigMapChild) -> Manifest:
    """Render the ConfigMap; its long texts, the pod's scripts, are put in afterwards.

    They are most of what a resource renders and the same for all; through the template and the gate they took more
    time than all else together.
    """
    short = {key: text if len(text) <= _LONG_CHARACTERS else "" for key, text in config_map.data.items()}
    rendered = _render(_CONFIG_MAP, config_map.meta, config_map=dataclasses.replace(config_map, data=short))
    if rendered["data"] != short:
        raise RenderError(f"{_CONFIG_MAP.file}: its data is not what was asked for")
    return {**rendered, "data": dict(config_map.data)}


def render_revision(meta: Meta, number: int, data: Manifest) -> Manifest:
    """Render a ControllerRevision.

    Raises:
        RenderError: the result is not the object it should be.

    """
    return _render(_REVISION, meta, meta=meta, number=number, data=data)


@functools.cache
def environment() -> jinja2.Environment:
    """Build the template environment: sandboxed, no silent blanks, one filter."""
    env = ImmutableSandboxedEnvironment(
        loader=jinja2.PackageLoader("qwen_cached_serve.render", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["q"] = _quote
    return env


def _quote(value: Any) -> str:
    # StrictUndefined only complains when it is turned into text, which the dumper never does.
    return quote(str(value) if isinstance(value, jinja2.Undefined) else value)


def _render(template: _Template, expected: Meta, **context: Any) -> Manifest:
    try:
        text = environment().get_template(template.file).render(context)
    except jinja2.TemplateError as error:
        raise RenderError(f"{template.file}: {error}") from error
    try:
        document = load_one(text)
    except yaml.YAMLError as error:
        raise RenderError(f"{template.file}: not valid YAML: {error}") from error
    return check(document, template.file, template.api_version, template.kind, expected.name, template.model)


def check(document: Any, source: str, api_version: str, kind: str, name: str, model: str) -> Manifest:
    """Pass a parsed document that is exactly what was asked for and that the Kubernetes API takes as it is.

    Raises:
        RenderError: anything else.

    """
    if not isinstance(document, dict):
        raise RenderError(f"{source}: not an object")
    found = (document.get("apiVersion"), document.get("kind"), (document.get("metadata") or {}).get("name"))
    if found != (api_version, kind, name):
        raise RenderError(f"{source}: made {found}, expected {(api_version, kind, name)}")
    import pydantic

    try:
        parsed = _model(model).model_validate(document)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RenderError(f"{source}: {where}: {first['msg']}") from error
    if parsed.model_dump(mode="json", by_alias=True, exclude_unset=True) != document:
        raise RenderError(f"{source}: a field is not spelled as the Kubernetes API spells it")
    return document


@functools.cache
def _model(name: str) -> Any:
    if name == pod_monitor.PodMonitor.__name__:
        return pod_monitor.PodMonitor
    # Imported late: the models take a second or two, which `qcs validate` and `qcs plan` need not wait for.
    import kubernetes.client.models

    return getattr(kubernetes.client.models, name)
