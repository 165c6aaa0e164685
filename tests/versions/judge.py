"""Run in a release's own interpreter: what the construct method says of each of several settings.

    python judge.py CODE QUESTIONS        prints "ANSWERS" and a JSON object

CODE is the folder with the pod's scripts. The question "N settled elsewhere" is asked with a platform that leaves the
block size alone, as a release would whose engine settles N at another place.
"""

import json
import sys
import traceback
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from qwen_cached_serve.inpod.classify import classify
from qwen_cached_serve.inpod.construct import find_report
from qwen_cached_serve.inpod.facts import ServeSettings, dump, load
from qwen_cached_serve.inpod.refusal import Refusal


def answer(settings):
    try:
        return {"report": dump(find_report(settings))}
    except Refusal as refusal:
        return {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}
    except Exception as error:
        traceback.print_exc()
        return {"code": classify(error).code, "message": classify(error).message, "hint": ""}


def leave_the_block_size_alone():
    from vllm.platforms import current_platform

    type(current_platform).update_block_size_for_backend = classmethod(lambda cls, config: None)


questions = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
answers = {}
for name, data in questions.items():
    if name == "N settled elsewhere":
        leave_the_block_size_alone()
    answers[name] = answer(load(ServeSettings, data))
print("ANSWERS" + json.dumps(answers), flush=True)
