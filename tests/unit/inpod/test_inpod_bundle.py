"""What the ConfigMap holds runs by itself: no package around it, standard library only."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.inpod.facts import ServeSettings, dumps, load


def write(folder: Path, settings: ServeSettings) -> Path:
    for name, text in bundle.files_for(settings).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S -E -s: nothing but the standard library, whatever this interpreter has installed.
    command = [sys.executable, "-S", "-E", "-s", str(folder), *arguments]
    environ = {"PATH": "/usr/bin:/bin", "QCS_CODE_DIR": str(folder), "QCS_STATE_DIR": str(folder / "no-state")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/", env=environ)


def test_the_folder_runs_without_anything_installed(tmp_path: Path, settings: ServeSettings) -> None:
    folder = write(tmp_path, settings)
    usage = run(folder)
    assert usage.returncode == 2
    assert "probe | cache-server | engine | ready" in usage.stderr
    ready = run(folder, "ready")
    assert (ready.returncode, ready.stdout) == (1, "not ready: the engine has not been started yet\n")
    engine = run(folder, "engine")
    assert engine.returncode == 1
    assert "ProbeMissing" in engine.stderr
    written = list((folder / "qwen_cached_serve").rglob("*.pyc"))
    assert not written, "the mount is read-only; nothing may be written beside the scripts"


def test_every_module_but_vllm_is_from_the_standard_library(settings: ServeSettings) -> None:
    allowed = set(sys.stdlib_module_names) | {"qwen_cached_serve"}
    for name, text in bundle.files().items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported = {str(node.module).split(".")[0]}
            else:
                continue
            assert imported <= allowed, f"{name} imports {imported - allowed}"


def test_the_package_in_the_pod_is_a_namespace(settings: ServeSettings) -> None:
    names = set(bundle.files_for(settings))
    assert {"__main__.py", "settings.json", "qwen_cached_serve/inpod/probe.py"} <= names
    assert "qwen_cached_serve/__init__.py" not in names
    assert {name for name in names if name.endswith(".json")} == {
        "settings.json",
        "qwen_cached_serve/inpod/vllm-profiles.json",
        "qwen_cached_serve/inpod/lmcache-profiles.json",
        "qwen_cached_serve/inpod/neutral.json",
    }


def test_it_fits_a_config_map(settings: ServeSettings) -> None:
    size = sum(len(text.encode()) for text in bundle.files_for(settings).values())
    assert size < 400_000  # of the 1 MiB that the API server takes


def test_settings_survive_the_trip(settings: ServeSettings) -> None:
    text = bundle.files_for(settings)["settings.json"]
    assert load(ServeSettings, json.loads(text)) == settings
    assert text == dumps(settings)


def test_the_hash_is_of_the_content(settings: ServeSettings) -> None:
    content = bundle.files_for(settings)
    assert bundle.content_hash(content) == bundle.content_hash(dict(reversed(content.items())))
    assert bundle.content_hash(content) != bundle.content_hash({**content, "settings.json": "{}"})
    assert bundle.content_hash({"a": "b"}) != bundle.content_hash({"ab": ""})
    assert len(bundle.content_hash(content)) == 16
