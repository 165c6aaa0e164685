import jinja2
import pytest

from qwen_cached_serve.render.manifests import RenderError, check, environment

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "q"},
    "spec": {"type": "ClusterIP", "ports": [{"port": 80, "name": "http"}]},
}


def checked(document):
    return check(document, "service.yaml.j2", "v1", "Service", "q", "V1Service")


def test_a_right_document_passes_unchanged():
    assert checked(SERVICE) is SERVICE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {"type": "ClusterIP", "portz": []}}, "spec.portz: Extra inputs"),
        ({"spec": {"ports": [{"port": "80"}]}}, "spec.ports.0.port: Input should be a valid integer"),
        ({"spec": {"cluster_ip": "None"}}, "not spelled as the Kubernetes API spells it"),
        ({"kind": "Pod"}, "made .*'Pod'.*expected .*'Service'"),
        ({"metadata": {"name": "other"}}, "made .*'other'"),
        ({"metadata": None}, "made"),
    ],
)
def test_anything_else_is_refused(change, words):
    with pytest.raises(RenderError, match=words):
        checked(SERVICE | change)


def test_quantities_have_to_be_strings():
    container = {"name": "a", "resources": {"limits": {"memory": 5}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": {"containers": [container]}}
    with pytest.raises(
        RenderError, match=r"spec\.containers\.0\.resources\.limits\.memory: Input should be a valid string"
    ):
        check(pod, "x", "v1", "Pod", "q", "V1Pod")


def test_a_typo_in_a_template_is_an_error_and_no_blank():
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ service.prot | q }}").render(service={"port": 1})


def test_templates_are_sandboxed():
    with pytest.raises(jinja2.exceptions.SecurityError):
        environment().from_string("{{ x.__class__.__mro__ | q }}").render(x="")
    with pytest.raises(jinja2.exceptions.SecurityError):
        environment().from_string("{{ x.update({}) | q }}").render(x={})
