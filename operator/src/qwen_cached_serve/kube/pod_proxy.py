"""Asking a program of a pod through the API server: works from outside the cluster, with the user's own rights."""

from __future__ import annotations

from qwen_cached_serve.kube.client import KubeClient
from qwen_cached_serve.kube.port import PODS


async def pod_answer(client: KubeClient, namespace: str, pod: str, port: int, path: str) -> str:
    """Return the text that a pod answers to `GET /path` on a port; needs `get` on `pods/proxy`.

    Raises:
        Forbidden: no permission.
        ApiError: the pod does not answer; in the API server's words.

    """
    return await client.text(f"{PODS.path(namespace, f'{pod}:{port}', 'proxy')}/{path}")
