import pytest
from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("calm", deadline=None)
settings.load_profile("calm")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/*/out.yaml anew")


@pytest.fixture
def update_golden(request):
    return request.config.getoption("--update-golden", default=False)  # known only to `pytest tests/unit/render`
