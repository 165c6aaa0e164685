"""Run in a release's own interpreter: an engine for each of several settings, started to its end, and what it says.

    python engines.py CODE QUESTIONS        prints "ANSWERS" and a JSON object

CODE is the folder with the pod's scripts. Weights are random; when an engine is up, its metric `vllm:cache_config_info`
is read, and then it answers a request. Each is a fork of this process with the engine core in it
(VLLM_ENABLE_V1_MULTIPROCESSING=0): imports take longer than all else in such an engine's life, so this process imports
what the first one had to import, before it forks the next.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from qwen_cached_serve.inpod import vllm_api
from qwen_cached_serve.inpod.facts import ServeSettings, load
from qwen_cached_serve.inpod.flags import probe_argv

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
OWN = ["--load-format", "dummy", "--max-num-batched-tokens", "8192"]


def answer(settings, version):
    from prometheus_client import REGISTRY
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments = vllm_api.parse([*probe_argv(settings, version, ""), *OWN])
    engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(arguments))
    samples = [one for metric in REGISTRY.collect() for one in metric.samples]
    (info,) = [one.labels for one in samples if one.name == "vllm:cache_config_info"]
    engine.add_request("one", {"prompt_token_ids": list(range(10, 50))}, SamplingParams(max_tokens=2, temperature=0))
    tokens = []
    try:
        while engine.has_unfinished_requests():
            tokens = [list(output.outputs[0].token_ids) for output in engine.step()] or tokens
    except RuntimeError as error:
        return {"labels": info, "failure": str(error)}
    return {"labels": info, "tokens": len(tokens[0])}


def import_all(names):
    """Import modules that another process has; what it made without a file of that name is left to the next one."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def forked(settings, version, path):
    """The answer of a child of its own, and what it imported; what it could not say is in its output."""
    child = os.fork()
    if child == 0:
        status = 1
        before = set(sys.modules)
        try:
            said = answer(settings, version)
            path.write_text(json.dumps([said, sorted(set(sys.modules) - before)]), encoding="utf-8")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return json.loads(path.read_text(encoding="utf-8")) if status == 0 else [{"status": status}, []]


vllm_api.import_vllm()
VERSION = importlib.metadata.version("vllm")
questions = Path(sys.argv[2])
answers = {}
for number, (name, data) in enumerate(json.loads(questions.read_text(encoding="utf-8")).items()):
    print(f"engine for {name}", flush=True)
    answers[name], imported = forked(load(ServeSettings, data), VERSION, questions.with_name(f"answer-{number}.json"))
    import_all(imported)
print("ANSWERS" + json.dumps(answers), flush=True)
