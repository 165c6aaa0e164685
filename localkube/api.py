"""A small client of the Kubernetes API: JSON over HTTPS with a token, standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localkube.errors import LocalKubeError

_PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_TIMEOUT_S = 15.0


class ApiError(LocalKubeError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"The API server answered {status}: {message}")


@dataclass(frozen=True)
class Api:
    """One API server and the identity to talk to it with."""

    address: str
    port: int
    ca: Path
    token: str

    def ready(self) -> bool:
        """Whether /readyz answers ok."""
        try:
            return self._send("GET", "/readyz", None, {})[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> Any:
        """The object at the path; raises ApiError, with status 404 when there is none."""
        return self._json("GET", path, None, {})

    def exists(self, path: str) -> bool:
        """Whether there is an object at the path."""
        try:
            self.get(path)
        except ApiError as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def apply(self, path: str, obj: dict[str, Any]) -> Any:
        """Server-side apply as field manager ``localkube``."""
        return self._patch(f"{path}?fieldManager=localkube&force=true", "apply", obj)

    def patch(self, path: str, obj: Any, kind: Literal["merge", "strategic", "json"] = "strategic") -> Any:
        """Patch the object at the path."""
        return self._patch(path, kind, obj)

    def delete(self, path: str) -> None:
        """Delete the object at the path; one that is not there is fine."""
        try:
            self._json("DELETE", path, None, {})
        except ApiError as refused:
            if refused.status != 404:
                raise

    def _patch(self, path: str, kind: str, obj: Any) -> Any:
        return self._json("PATCH", path, obj, {"Content-Type": _PATCHES[kind]})

    def _json(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        try:
            status, text = self._send(method, path, body, headers)
        except (OSError, http.client.HTTPException) as failed:
            where = f"https://{self.address}:{self.port}"
            raise LocalKubeError(f"The API server at {where} does not answer: {failed}.", "See `status`.") from failed
        answer = json.loads(text)
        if status >= 300:
            raise ApiError(status, answer.get("message", text))
        return answer

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection(self.address, self.port, timeout=_TIMEOUT_S, context=context)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Authorization": f"Bearer {self.token}"} | headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()
