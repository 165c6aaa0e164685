"""Fixtures of the tiers that need a real node, and the outcome of each test for fixtures that keep logs."""

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


@pytest.fixture
def node_namespace(node, request):
    """A namespace on the real node; its logs are kept when the test fails."""
    name = "n-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-") + "-" + uuid.uuid4().hex[:5]
    node.shell.kubectl("create", "namespace", name)
    yield name
    if getattr(request.node, "outcome_call", "failed") == "failed":
        node.keep_logs(name, request.node.name)
    node.shell.kubectl("delete", "qcs", "--all", "-n", name)
    node.shell.kubectl("delete", "namespace", name)
