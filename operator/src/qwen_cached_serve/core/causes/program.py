"""Command lines, variables, ports and programs, and what says only that something failed."""

from __future__ import annotations

import re

from qwen_cached_serve.inpod.refusal import CODES
from qwen_cached_serve.inpod.reserved import check_extra_args
from qwen_cached_serve.inpod.reserved_tables import RESERVED_CACHE_SERVER_FLAGS, RESERVED_ENGINE_FLAGS

from .rule import FailureClass, Tier, rule

_AREA = "Program"

CLASSES = (
    FailureClass(
        "UnsupportedFlag",
        _AREA,
        "The program in the image does not know a flag, or refuses its value.",
        "spec.engine.extraArgs",
        "Remove or correct it. A flag that the operator derives means that the image is too old or too new "
        "(spec.engine.image).",
    ),
    FailureClass(
        "BadEngineArgs",
        _AREA,
        "The engine refuses its arguments.",
        "spec.engine.extraArgs",
        "Correct the field or the argument that the message names.",
    ),
    FailureClass(
        "ServiceEnvCollision",
        _AREA,
        "A Service's environment variable sets VLLM_PORT.",
        "spec.engine.env",
        "Remove VLLM_PORT; the pod itself has enableServiceLinks: false.",
    ),
    FailureClass(
        "CPUCacheSpaceInvalid",
        _AREA,
        "The engine wants a whole number where it got a fraction.",
        "spec.engine.env",
        "VLLM_CPU_KVCACHE_SPACE takes whole GiB.",
    ),
    FailureClass(
        "PortInUse",
        _AREA,
        "Another program in the pod listens on the port.",
        "spec.engine.extraArgs",
        "Remove arguments that set ports; a former life that has not ended yet goes away by itself.",
        heals=True,
    ),
    FailureClass(
        "ProgramMissing",
        _AREA,
        "The image lacks a program or package.",
        "spec.engine.image",
        "Use an image that holds both vLLM 0.32.0 and LMCache 0.5.6.",
    ),
    FailureClass(
        "KilledDuringStart",
        _AREA,
        "The engine was told to stop while it was starting.",
        "spec.engine.startupTimeoutSeconds",
        "If nobody deleted the pod, the load took longer than this allows: raise it, or keep downloads and compile "
        "caches (spec.model.downloadVolume).",
        heals=True,
    ),
    FailureClass(
        "EngineStartFailed",
        _AREA,
        "The engine failed to start; the cause is not in the captured part of its log.",
        "",
        "Read the engine container's log (kubectl logs --previous -c engine), or give the whole of it to qcs explain.",
        heals=True,
    ),
    FailureClass(
        "ContainerFailed",
        _AREA,
        "A container ended and said nothing.",
        "",
        "Read its log (kubectl logs --previous -c CONTAINER).",
        heals=True,
    ),
    FailureClass(
        "Unknown",
        _AREA,
        "The words are none that this operator knows; the last error line is quoted.",
        "",
        "Read the log around that line; report it, so that it gets a class.",
        heals=True,
    ),
)

_SERVER = "lmcache"
_ENGINE_ARGS, _SERVER_ARGS = "spec.engine.extraArgs", "spec.cache.extraArgs"


def _field_of_flag(match: re.Match[str]) -> str:
    """A flag that the operator derives cannot come from the user, so the image is at fault (B27)."""
    server = _SERVER in match["program"]
    table = RESERVED_CACHE_SERVER_FLAGS if server else RESERVED_ENGINE_FLAGS
    if check_extra_args([match["flag"]], table):
        return "spec.engine.image"
    return _SERVER_ARGS if server else _ENGINE_ARGS


_PROGRAM = r"(?:^|[:;\"] )(?P<program>[\w./\x20-]{0,80}?): error: "

RULES = (
    rule(
        "UnsupportedFlag",
        _PROGRAM + r"unrecognized arguments: (?P<flag>--?[^\s=]+)",
        "The program in this image does not know {flag}.",
        remedy="An argument of yours: remove it. One that the operator derives: the image is too old or too new.",
        field=_field_of_flag,
    ),
    rule(
        "UnsupportedFlag",
        _PROGRAM + r"argument (?P<flag>--?[^\s:/,]+)[^\s:]*: (?P<words>(?:invalid|expected|not allowed)[^\n]{0,200})",
        "The program in this image refuses the value of {flag}: {words}",
        remedy="An argument of yours: correct it. One that the operator derives: the image is too old or too new.",
        field=_field_of_flag,
    ),
    rule(
        "UnsupportedFlag",
        _PROGRAM + r"the following arguments are required: (?P<flag>--?[^\s,]+)",
        "The program in this image wants {flag}.",
        field="spec.engine.image",
    ),
    rule(
        "ServiceEnvCollision",
        r"VLLM_PORT '(?P<value>[^'\n]{1,200})' appears to be a URI",
        "A Service's environment variable sets VLLM_PORT to {value}.",
    ),
    rule(
        "CPUCacheSpaceInvalid",
        r"validation errors? for VllmConfig Value error, invalid literal for int\(\) with base 10: "
        r"'(?P<value>\d*\.\d+)'",
        "The engine wants a whole number where it got {value}.",
    ),
    rule("PortInUse", r"(?:Address already in use|address already in use|Errno 98\])"),
    rule(
        "ProgramMissing",
        r"(?:ModuleNotFoundError: No module named '(?P<module>(?:vllm|lmcache|torch|cuda|cupy)\b[^'\n]{0,80})'|"
        r"exec: \"(?P<program>[^\"\n]{1,100})\": (?:executable file not found|stat [^\n]{0,100}no such file))",
    ),
    rule(
        "BadEngineArgs",
        r"(?<!\d)\d{1,4} validation errors? for (?P<config>\w+Config)\b(?:[^\n]*\n)? *"
        r"(?:Value error|Assertion failed), "
        r"(?P<words>[^\n\[]{1,240})",
        "The engine refuses its arguments: {words}",
        tier=Tier.SYMPTOM,
    ),
    rule(
        "KilledDuringStart",
        r"KeyboardInterrupt: terminated",
        tier=Tier.SYMPTOM,
    ),
    rule(
        "EngineStartFailed",
        r"(?:Engine core initialization failed|EngineCore failed to start|Worker failed with error|"
        r"Frontend process failed during engine core initialization|WorkerProc initialization failed|"
        r"EngineDeadError|EngineCore encountered a fatal error|died unexpectedly \(exit code)",
        tier=Tier.WRAPPER,
    ),
)

REFUSAL = re.compile(
    r"^qcs (?P<verb>[a-z-]+): (?P<code>" + "|".join(sorted(CODES)) + r"): (?P<words>[^\n]*)", re.MULTILINE
)
"""How the pod's own scripts say in the log what they also write as termination message (`inpod.start`)."""
