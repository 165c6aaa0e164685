"""`status.roll`: how far a roll has come and what keeps it; absent while there is none.

Level-based: it is told from the Deployment's figures and the revision that was last rolled out in full, so an operator
that starts in the middle says the same. Figures count pods, nothing in it changes with traffic or with time alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwen_cached_serve.core.lifecycle import on_the_way
from qwen_cached_serve.core.view import View


def roll_status(view: View, revision: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the roll that goes on; `revision` is `status.revision` as it is about to be written.

    A first start replaces nothing and is no roll; nor is a pod that is lost and made again.
    """
    deployment, updated, current = view.deployment, revision.get("updated"), revision.get("current")
    replaces = current or revision.get("history")
    if deployment is None or view.rolled_out or not updated or updated == current or not replaces:
        return None
    roll: dict[str, Any] = {
        "to": updated,
        "updated": deployment.updated if deployment.current else 0,
        "total": deployment.wanted,
        "reason": _reason(view),
    }
    return {"from": current, **roll} if current else roll


def _reason(view: View) -> str:
    if view.subject.apply_error:
        return view.subject.apply_reason
    if view.deployment is None or not view.deployment.current:
        return "RollInProgress"
    return on_the_way(view)[0]
