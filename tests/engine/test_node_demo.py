"""The main job end to end, as the demo shows it: apply, Ready, cached hits after a kill, edits, simulated GPUs, delete."""

import json
import subprocess
import sys

from tests.node_support import ROOT


def test_the_demo_ends_with_cached_hits(node, tmp_path):
    figures = tmp_path / "report.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "demo",
            "--cluster",
            "existing",
            "--kubeconfig",
            node.kubeconfig,
            "--report",
            str(figures),
        ],
        cwd=ROOT,
        env={**__import__("os").environ, "QCS_DEMO_SIMULATED_NODES": "true"},
        check=False,
    )
    assert done.returncode == 0
    report = json.loads(figures.read_text())
    assert report["plans"]["Qwen/Qwen3.6-27B"] == {"block_size": 784, "chunk_size": 784, "max_num_batched_tokens": 1567}
    assert report["plans"]["Qwen/Qwen3.5-0.8B"] == {
        "block_size": 544,
        "chunk_size": 544,
        "max_num_batched_tokens": 1087,
    }
    assert (report["block_size"], report["chunk_size"], report["max_num_batched_tokens"]) == (352, 352, 703)
    # Every whole chunk of the prompt but the one that is still being computed.
    assert report["external_hit_tokens"] == 4 * 352
    assert report["chunk_size_after_edit"] == 2 * 352
    assert "--max-num-batched-tokens" in report["refused_edit"]
    assert report["simulated"]["gpu-27b"] == {"block_size": 784, "chunk_size": 784, "max_num_batched_tokens": 1567}
    assert report["simulated"]["gpu-0-8b"] == {"block_size": 544, "chunk_size": 544, "max_num_batched_tokens": 1087}
    kept = ROOT / "build" / "demo" / "report.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(figures.read_text())
