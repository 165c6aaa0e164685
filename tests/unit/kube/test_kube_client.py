"""How answers become errors. Requests themselves: tests/cluster/test_operator_port.py (a real API server)."""

import pytest

from qwen_cached_serve.kube import connection
from qwen_cached_serve.kube.answers import error_of, object_in
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    SERVES,
    Budget,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Transient,
    resource_of,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (413, Invalid),
        (422, Invalid),
        (429, Transient),
        (500, Transient),
        (503, Transient),
    ],
)
def test_status_decides_the_kind(status, kind):
    error = error_of(status, {"message": "words of the server", "reason": "R"})
    assert type(error) is kind
    assert (error.message, error.status, error.reason) == ("words of the server", status, "R")


def test_unknown_field_is_invalid_although_the_server_says_500():
    words = "failed to create typed patch object (n/x; /v1, Kind=ConfigMap): .dat: field not declared in schema"
    assert type(error_of(500, {"message": words})) is Invalid


@pytest.mark.case("B55")
def test_retry_after_is_read_from_body_and_header():
    assert error_of(429, {"details": {"retryAfterSeconds": 2}}).retry_after_seconds == 2
    assert error_of(429, {}, "7").retry_after_seconds == 7
    assert error_of(503, {}, "Wed, 21 Oct 2026 07:28:00 GMT").retry_after_seconds == 0


def test_an_answer_without_words_still_has_a_message():
    assert error_of(503, {}).message == "the API server answered 503"


@pytest.mark.case("B61")
def test_a_terminating_namespace_is_recognised():
    words = 'configmaps "x" is forbidden: unable to create new content in namespace n because it is being terminated'
    assert error_of(403, {"message": words}).namespace_terminating
    assert not error_of(403, {"message": "exceeded quota"}).namespace_terminating


def test_paths():
    assert DEPLOYMENTS.path("n", "d") == "/apis/apps/v1/namespaces/n/deployments/d"
    assert CONFIG_MAPS.path(None) == "/api/v1/configmaps"
    assert SERVES.path("n", "q", "status") == "/apis/qwencache.dev/v1alpha1/namespaces/n/qwencachedserves/q/status"
    assert resource_of({"apiVersion": "apps/v1", "kind": "Deployment"}) is DEPLOYMENTS
    with pytest.raises(KeyError):
        resource_of({"apiVersion": "v1", "kind": "Secret"})


@pytest.mark.parametrize("body", [b"", b"<html>a proxy's page</html>", b"[]", b"null", b"\x1f\x8b packed"])
def test_a_success_without_an_object_is_tried_again(body):
    with pytest.raises(Transient, match="PATCH /x: the answer is no JSON"):
        object_in(body, "PATCH /x")
    assert object_in(b'{"kind": "Pod"}', "PATCH /x") == {"kind": "Pod"}


async def test_no_kubeconfig_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(connection.ConnectionFailed, match="set --kubeconfig or KUBECONFIG"):
        await connection.load(connection.Origin(kubeconfig=str(tmp_path / "nothing")))


async def test_a_broken_kubeconfig_says_so(tmp_path):
    path = tmp_path / "config"
    path.write_text("current-context: a\nclusters: []\nusers: []\ncontexts: []\n")
    with pytest.raises(connection.ConnectionFailed, match="cannot be used"):
        await connection.load(connection.Origin(kubeconfig=str(path)))


CONTEXT = """
contexts: [{name: a, context: {cluster: a, user: u}}]
current-context: a
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize(
    "text",
    [
        "{{{",
        "[]",
        "clusters: [{name: a, cluster: 7}]" + CONTEXT,
        "clusters: [{name: a, cluster: {server: 'https://x.invalid:1', certificate-authority-data: '!!!'}}]" + CONTEXT,
    ],
)
async def test_whatever_is_wrong_with_a_kubeconfig_is_one_line(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(connection.ConnectionFailed) as failed:
        await KubeClient.connect(connection.Origin(kubeconfig=str(path)))
    assert "\n" not in str(failed.value)


async def test_kubeconfig_gives_both_clients_the_same_credentials(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        """
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: d, user: u}}]
clusters: [{name: c, cluster: {server: "https://one:6443"}}, {name: d, cluster: {server: "https://two"}}]
users: [{name: u, user: {token: abc}}]
"""
    )
    endpoint = await connection.endpoint(connection.Origin(kubeconfig=str(path)))
    assert (endpoint.server, endpoint.authorization) == ("https://one:6443", "Bearer abc")
    other = await connection.endpoint(connection.Origin(kubeconfig=str(path), context="b"))
    assert other.server == "https://two"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (
            429,
            {
                "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 2 healthy pods and has 2"}]},
            },
        ),
        (500, {"message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not …"}),
    ],
)
def test_a_budget_is_no_trouble(status, answer):
    error = error_of(status, answer)
    assert type(error) is Budget
    for cause in answer.get("details", {}).get("causes", ()):
        assert cause["message"] in error.message


def test_too_many_requests_is_no_budget():
    assert type(error_of(429, {"message": "Too many requests, please try again later."})) is Transient
