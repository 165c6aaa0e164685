"""What a test does on a machine that lacks what it needs."""

import os
from typing import NoReturn

import pytest


def unavailable(reason) -> NoReturn:
    """Skip with one line; under CI=true that is a failure, since CI must have everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"this machine cannot run the test: {reason}")
    pytest.skip(str(reason))
