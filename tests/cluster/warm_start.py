"""Operators for tests, forked from a process that has imported everything: a start costs no seconds of imports.

What runs is `qwen_cached_serve.__main__.main` in a process of its own, with the arguments, environment and output that
a start from a shell would have. The shipped command itself runs in the node tier, in its image.
"""

import atexit
import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "operator" / "src"


class WarmProcess:
    """The part of `subprocess.Popen` that tests use."""

    def __init__(self, arguments, environ, log):
        self._process = _server().Process(target=_become_operator, args=(arguments, environ, str(log)), daemon=True)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("the operator", timeout)
        return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self._process.kill()


@functools.cache
def _server():
    """Python's fork server, with the operator imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["qwen_cached_serve.__main__", "qwen_cached_serve.app"])
    former = os.environ.get("PYTHONPATH")
    # Some releases of Python do not hand sys.path on to what the fork server imports first.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCES), former)))
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if former is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = former
    return context


def _become_operator(arguments, environ, log):
    os.environ.clear()
    os.environ.update(environ)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    from qwen_cached_serve.__main__ import main

    sys.argv = ["qwen_cached_serve", *arguments]
    try:
        sys.exit(main(arguments))
    finally:
        atexit._run_exitfuncs()  # a process of multiprocessing ends without: the kubeconfig's certificates would stay
