"""Runs in a pod beside the served ones: short requests to the Service, one by one, each a connection of its own.

    python3 client.py URL MODEL STOP_FILE

Ends when STOP_FILE appears and prints what it saw as one JSON line. Nothing is tried twice: a request that failed is a
lost request.
"""

import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 120
PAUSE_SECONDS = 0.2


def ask(url, model):
    """Send one request; returns why it failed, empty when it was answered."""
    body = json.dumps({"model": model, "prompt": "hello", "max_tokens": 2, "temperature": 0}).encode()
    request = urllib.request.Request(f"{url}/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            json.load(answer)
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    return ""


def main(url, model, stop):
    sent, lost, words, slowest, outage, answered = 0, 0, {}, 0.0, 0.0, time.monotonic()
    while not pathlib.Path(stop).exists():
        began = time.monotonic()
        sent += 1
        if why := ask(url, model):
            lost += 1
            words[why] = words.get(why, 0) + 1
        else:
            now = time.monotonic()
            slowest, outage, answered = max(slowest, now - began), max(outage, now - answered), now
        time.sleep(PAUSE_SECONDS)
    outage = max(outage, time.monotonic() - answered)
    found = {"sent": sent, "lost": lost, "why": words, "slowest_seconds": round(slowest, 1)}
    print(json.dumps({**found, "longest_without_answer_seconds": round(outage, 1)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
