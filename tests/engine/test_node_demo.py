"""The main job end to end, as the demo shows it: Ready, cached hits after a kill, edits, simulated GPUs, delete."""

import json
import os
import subprocess
import sys

from tests.node_support import ROOT


def of(block_size):
    return {"block_size": block_size, "chunk_size": block_size, "max_num_batched_tokens": 2 * block_size - 1}


def test_the_demo_ends_with_cached_hits(node):
    figures = ROOT / "build" / "demo" / "report.json"
    figures.unlink(missing_ok=True)
    options = ["--cluster", "existing", "--kubeconfig", node.kubeconfig, "--report", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "demo", *options],
        cwd=ROOT,
        env=os.environ | {"QCS_DEMO_SIMULATED_NODES": "true"},
        check=False,
    )
    assert done.returncode == 0
    report = json.loads(figures.read_text())
    assert report["plans"] == {"Qwen/Qwen3.6-27B": of(784), "Qwen/Qwen3.5-0.8B": of(544)}
    assert (report["block_size"], report["chunk_size"], report["max_num_batched_tokens"]) == (352, 352, 703)
    # Four whole chunks fit into the prompt.
    assert report["external_hit_tokens"] == 4 * 352
    assert report["chunk_size_after_edit"] == 2 * 352
    assert "--max-num-batched-tokens" in report["refused_edit"]
    assert report["simulated"] == {"gpu-27b": of(784), "gpu-0-8b": of(544)}
