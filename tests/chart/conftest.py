"""Helm and promtool themselves, built from pinned Go modules; a machine that cannot have them skips with one line."""

import pytest

from tests.chart.helm_support import Helm, built

BUILD_SECONDS = 2400
"""The first test may have to build its program, on a machine that builds other things beside it."""


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/chart/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(BUILD_SECONDS))


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    return Helm(built("helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def promtool():
    return built("promtool")
