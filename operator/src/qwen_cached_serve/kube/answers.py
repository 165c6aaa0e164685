"""How answers of the API server become results and the port's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qwen_cached_serve.kube.port import ApiError, Budget, Conflict, Forbidden, Invalid, Manifest, NotFound, Transient


def error_of(status: int, answer: Manifest, retry_after: str = "") -> ApiError:
    """Return the port's error for an HTTP answer that is not a success (`answer` is the API's Status object)."""
    message = str(answer.get("message") or f"the API server answered {status}")
    reason = str(answer.get("reason") or "")
    details = answer.get("details") or {}
    seconds = details.get("retryAfterSeconds") or (int(retry_after) if retry_after.isdigit() else 0)
    kind: type[ApiError]
    budgets = [str(one.get("message") or "") for one in details.get("causes") or [] if _is_budget(one)]
    if budgets or "more than one PodDisruptionBudget" in message:
        # Two budgets for one pod are answered with 500, and stay so until somebody removes one.
        kind, message = Budget, " ".join([message, *budgets]).strip()
    elif "field not declared in schema" in message:
        # Server-side apply answers 500 to an unknown field (seen with 1.36.3), yet sending it again never helps.
        kind = Invalid
    elif status in (401, 403):
        kind = Forbidden
    elif status == 404:
        kind = NotFound
    elif status == 409:
        kind = Conflict
    elif status == 429 or status >= 500:
        kind = Transient
    else:
        kind = Invalid
    return kind(message, status=status, reason=reason, retry_after_seconds=float(seconds))


def _is_budget(cause: Mapping[str, Any]) -> bool:
    return cause.get("reason") == "DisruptionBudget"


def object_in(raw: bytes, request: str) -> Manifest:
    """Read the object that a success is answered with.

    Raises:
        Transient: there is none: what answered is not the API server, or something on the way spoiled it.

    """
    try:
        found: Any = json.loads(raw)
    except ValueError as error:
        raise Transient(f"{request}: the answer is no JSON: {raw[:80]!r}") from error
    if not isinstance(found, dict):
        raise Transient(f"{request}: the answer is no JSON object: {raw[:80]!r}")
    return found


def parsed(raw: bytes) -> Manifest:
    """Read a JSON object; another answer (a proxy's page) becomes its message."""
    try:
        found: Any = json.loads(raw)
    except ValueError:
        return {"message": raw[:500].decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {}
