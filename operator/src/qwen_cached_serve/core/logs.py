"""What an engine's log says about N: the pod's own reader, for the operator and `qcs explain` too.

The log is a witness only: the probe measures N.
"""

from __future__ import annotations

from qwen_cached_serve.inpod.engine_log import EngineLogFacts, read_engine_log

__all__ = ["EngineLogFacts", "read_engine_log"]
