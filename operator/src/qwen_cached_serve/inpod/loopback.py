"""HTTP to the pod's own programs on loopback: bounded in time and size, no redirects, no proxy."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Any

LOOPBACK = "127.0.0.1"


class NoAnswer(Exception):  # noqa: N818 - an observation
    """Nobody answered, or not in the way HTTP wants; the message says which."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, its body cut off nowhere."""

    status: int
    content_type: str
    body: bytes


def ask(
    port: int,
    path: str,
    *,
    timeout_seconds: float,
    limit_bytes: int,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """GET `path`, or POST `body` as JSON, and read the whole answer.

    Raises:
        NoAnswer: no connection, time is up, the answer is larger than the limit or is not HTTP.

    """
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_seconds)
    try:
        sent: dict[str, Any] = {"Connection": "close", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request("GET" if body is None else "POST", path, body=body, headers=sent)
        response = connection.getresponse()
        content = response.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise NoAnswer(f"the answer of {path} is larger than {limit_bytes} bytes")
        return Answer(response.status, response.headers.get("Content-Type", "text/plain"), content)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"port {port}{path}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
