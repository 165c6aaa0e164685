"""Requests to a cluster, and their errors as one line for people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from qwen_cached_serve.cli.errors import CliError
from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.connection import ConnectionFailed, Origin
from qwen_cached_serve.kube.port import ApiError, NotFound

T = TypeVar("T")


def ask(origin: Origin, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Connect, do the work and close; errors as `run`."""

    async def connected() -> T:
        client = await KubeClient.connect(origin)
        try:
            return await work(client)
        finally:
            await client.close()

    return run(connected())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's requests.

    Raises:
        CliError: no cluster, no permission, no such object; in the API server's words.

    """
    try:
        return asyncio.run(work)
    except NotFound as error:
        raise CliError(error.message) from error
    except ApiError as error:
        raise CliError(f"the API server says: {error.message}") from error
    except ConnectionFailed as error:
        raise CliError(str(error)) from error
