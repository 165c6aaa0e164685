"""Where the model comes from: a path in the pod, or a hub id whose revision is resolved to a commit.

No weights are fetched here; the hub is asked for one commit, or its cache is read when the pod is offline.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

from .refusal import Refusal

_HUB_TIMEOUT_SECONDS = 60


def resolve(model: str, revision: str | None) -> str:
    """Check that the model can be had, and return its commit: empty for a path.

    Raises:
        Refusal: CheckpointMissing, ModelAccessDenied, ModelNotAvailableOffline.

    """
    if model.startswith("/"):
        _check_folder(Path(model))
        return ""
    if _offline():
        return _cached_commit(model, revision or "main")
    return _ask_hub(model, revision)


def _check_folder(folder: Path) -> None:
    config = folder / "config.json"
    if not folder.is_dir():
        raise Refusal(
            "CheckpointMissing",
            f"{folder} is not a folder in the pod",
            "Check spec.model.name: for a volume or image it is the path inside it.",
        )
    try:
        data = json.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(
            "CheckpointMissing",
            f"{config} cannot be read: {error.strerror}",
            "Check spec.model.name and that the files can be read by spec.pod.securityContext's user.",
        ) from error
    except ValueError as error:
        raise Refusal("CheckpointMissing", f"{config} is not JSON: {error}", "The checkpoint is damaged.") from error
    if not isinstance(data, dict):
        raise Refusal("CheckpointMissing", f"{config} is not a model configuration", "The checkpoint is damaged.")


def _offline() -> bool:
    words = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(word.strip().lower() in {"1", "true", "yes", "on"} for word in words)


def _cached_commit(model: str, revision: str) -> str:
    cache = Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
    folder = cache / f"models--{model.replace('/', '--')}"
    reference = folder / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    if (folder / "snapshots" / commit / "config.json").is_file():
        return commit
    raise Refusal(
        "ModelNotAvailableOffline",
        f"{model} at {revision} is not in the download volume ({folder}), and the pod may not go online",
        "Set spec.model.source.huggingFace.offline to Disabled once, or fill spec.model.downloadVolume.",
    )


def _ask_hub(model: str, revision: str | None) -> str:
    # The engine's image has it, not the operator's; imported late and without types.
    hub: Any = importlib.import_module("huggingface_hub")
    errors: Any = importlib.import_module("huggingface_hub.errors")
    where_token = "spec.model.source.huggingFace.tokenSecretKeyRef"  # noqa: S105 - names a field
    wanted = f"{model} at {revision or 'main'}"
    try:
        information: Any = hub.HfApi().model_info(model, revision=revision, timeout=_HUB_TIMEOUT_SECONDS)
    except errors.GatedRepoError as error:
        raise Refusal(
            "ModelAccessDenied",
            f"the hub refuses {model}: its licence must be accepted by the token's account",
            f"Accept it on the model's page, and name the token's Secret in {where_token}.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise Refusal(
            "CheckpointMissing", f"{wanted}: no such revision", "Correct spec.model.source.huggingFace.revision."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise Refusal(
            "ModelAccessDenied"
            if getattr(getattr(error, "response", None), "status_code", 0) in (401, 403)
            else "CheckpointMissing",
            f"the hub does not show {model}: it does not exist, or the token may not see it",
            f"Check spec.model.name and {where_token}.",
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status in (401, 403):
            raise Refusal(
                "ModelAccessDenied", f"the hub answers {status} for {model}", f"Check the token in {where_token}."
            ) from error
        raise Refusal("CheckpointMissing", f"the hub answers {status} for {wanted}", "Try again later.") from error
    except Exception as error:  # the HTTP client's own errors differ between versions of huggingface_hub
        return _cached_after_failure(model, revision or "main", error)
    return str(information.sha)


def _cached_after_failure(model: str, revision: str, error: Exception) -> str:
    """The hub cannot be reached: what was downloaded before serves as well, and the engine will use it too."""
    try:
        return _cached_commit(model, revision)
    except Refusal as refusal:
        raise Refusal(
            "ModelNotAvailableOffline",
            f"the hub cannot be reached ({type(error).__name__}: {error}), and {model} is not in the download volume",
            "Check the network policy, the proxy and spec.model.source.huggingFace.endpoint, or fill "
            "spec.model.downloadVolume.",
        ) from refusal
