"""Qwen cached-serving operator: a `QwenCachedServe` becomes a vLLM pod with an LMCache server as native sidecar."""

__version__ = "0.1.0"
