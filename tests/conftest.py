"""Fixtures of the tiers that need a real node, and the outcome of each test for fixtures that keep logs."""

import contextlib
import re
import uuid

import pytest

from tests import node_support


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    setattr(item, f"outcome_{report.when}", report.outcome)
    return report


@pytest.fixture(scope="session")
def node():
    return node_support.connect()


@contextlib.contextmanager
def _namespace(node, label, failed):
    """A namespace on the real node; its logs are kept when something failed.

    Nobody waits for its end: the next test starts while the kubelet takes the pods down. Resources go first, so that
    the operator does not repair what the namespace's deletion removes.
    """
    name = "n-" + re.sub(r"[^a-z0-9]+", "-", label.lower())[:40].strip("-") + "-" + uuid.uuid4().hex[:5]
    node.shell.kubectl("create", "namespace", name)
    yield name
    if failed():
        node.keep_logs(name, label)
    node.shell.kubectl("delete", "qcs", "--all", "-n", name, "--wait=false")
    node.shell.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def node_namespace(node, request):
    """A namespace of this test's own."""
    with _namespace(
        node, request.node.name, lambda: getattr(request.node, "outcome_call", "failed") == "failed"
    ) as name:
        yield name


@pytest.fixture(scope="module")
def module_namespace(node, request):
    """A namespace for all tests of a module, which share what runs in it."""
    before = request.session.testsfailed
    with _namespace(node, request.node.path.stem, lambda: request.session.testsfailed > before) as name:
        yield name
