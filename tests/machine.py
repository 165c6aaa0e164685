"""What tests do on a machine that lacks what they need, and when several test processes share one."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import NoReturn

import pytest

LOCKS = Path(__file__).resolve().parents[1] / "build" / "locks"


def unavailable(reason) -> NoReturn:
    """Skip with one line; under CI=true that is a failure, since CI must have everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"this machine cannot run the test: {reason}")
    pytest.skip(str(reason))


@contextlib.contextmanager
def locked(name):
    """Hold a lock among all test processes of this checkout."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    with (LOCKS / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
