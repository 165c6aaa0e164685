"""
Mutation testing of the rules that everything rests on: `python -m tools.mutation` (`make mutation`), not part of CI.

mutmut changes one expression after the other in the modules of `MODULES` and runs their tests: a mutant that no test
notices is a rule that nothing holds. It works on a copy in build/mutation, with an environment of its own from
requirements/mutation.txt, and knows one source folder called src, so the copy has that shape. Module-level constants
and data files are not mutated: the rows of the facts and the comparison with the wheels hold those.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "mutation"
WORK = HOME / "work"
BIN = HOME / "venv" / "bin"

MODULES = {
    "core": ("blocksize", "backends", "kv_groups"),
    "inpod": ("engine_flags", "cache_server_flags", "flags", "flag"),
}
TESTS = (
    "tests/unit/core/test_blocksize.py",
    "tests/unit/inpod/test_inpod_flags.py",
    "tests/unit/inpod/test_inpod_flag_reasons.py",
)
SUPPORT = ("core/conftest.py", "core/fixtures", "inpod/conftest.py", "inpod/fixtures")

EQUIVALENT = ROOT / "tools" / "mutation-equivalent.json"
"""Mutants that cannot be told from the original, each with the reason."""


def environment() -> None:
    """Make the isolated environment, or bring it up to date."""
    uv = str(Path(sys.executable).with_name("uv"))
    if not BIN.is_dir():
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(BIN.parent)], check=True)
    requirements = str(ROOT / "requirements" / "mutation.txt")
    python = str(BIN / "python")
    subprocess.run([uv, "pip", "sync", "-q", "--python", python, "--require-hashes", requirements], check=True)


def workspace() -> None:
    """Copy package and tests into the shape that mutmut knows; what is older than now goes, results too."""
    shutil.rmtree(WORK, ignore_errors=True)
    source = WORK / "src" / "qwen_cached_serve"
    package = ROOT / "operator" / "src" / "qwen_cached_serve"
    shutil.copytree(package, source, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*TESTS, *(f"tests/unit/{part}" for part in SUPPORT)):
        origin, target = ROOT / name, WORK / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if origin.is_dir() else shutil.copy)(origin, target)
    modules = [f"src/qwen_cached_serve/{package}/{name}.py" for package, names in MODULES.items() for name in names]
    settings = {
        "source_paths": ["src"],
        "only_mutate": modules,
        "pytest_add_cli_args": ["-q", "--hypothesis-seed=0", "-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": list(TESTS),
        "use_git_change_detection": False,
    }
    lines = ["[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    lines += ["[tool.pytest.ini_options]", 'pythonpath = ["src"]', 'addopts = "--import-mode=importlib"']
    lines += ['markers = ["case(id): a case"]', 'asyncio_mode = "auto"', ""]
    (WORK / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")


def run(children: int, only: list[str]) -> None:
    """Let mutmut work; its exit status tells of survivors, which the table does better."""
    command = [str(BIN / "mutmut"), "run", "--max-children", str(children), *only]
    subprocess.run(command, cwd=WORK, check=False)


def outcomes() -> dict[str, str]:
    """Outcome of every mutant by its name."""
    command = [str(BIN / "mutmut"), "results", "--all", "true"]
    text = subprocess.run(command, cwd=WORK, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(re.findall(r"^\s*(\S+): (.+?)\s*$", text, re.MULTILINE))


def module_of(mutant: str) -> str:
    """Path-like name of the module a mutant is in."""
    return mutant.removeprefix("qwen_cached_serve.").rpartition(".")[0].replace(".", "/")


def report(found: dict[str, str]) -> int:
    """Print score and survivors; 1 when one of them is not explained."""
    explained: dict[str, str] = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    found = {name: outcome for name, outcome in found.items() if outcome != "not checked"}
    missed = {name for name, outcome in found.items() if outcome not in ("killed", "timeout")}
    print(f"\n{'module':<28}{'mutants':>8}{'killed':>8}{'equivalent':>12}{'survived':>10}")
    total: Counter[str] = Counter()
    for module in sorted({module_of(name) for name in found}):
        mutants = {name for name in found if module_of(name) == module}
        count = Counter(mutants=len(mutants), killed=len(mutants - missed))
        count["equivalent"] = len(mutants & missed & set(explained))
        count["survived"] = len((mutants & missed) - set(explained))
        total += count
        print(f"{module:<28}{count['mutants']:>8}{count['killed']:>8}{count['equivalent']:>12}{count['survived']:>10}")
    if not total["mutants"]:
        print("no mutants: mutmut did not run")
        return 1
    score = 100 * total["killed"] / (total["mutants"] - total["equivalent"])
    print(f"score: {total['killed']} of {total['mutants']} killed, {total['equivalent']} equivalent: {score:.1f} %")
    for name in sorted(missed - set(explained)):
        print(f"survived: {name} ({found[name]}); {BIN / 'mutmut'} show {name} in {WORK}")
    for name in sorted(set(explained) - missed):
        print(f"explained, but killed or gone: {name}")
    return 1 if total["survived"] else 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--children", type=int, default=2, help="processes that test mutants at the same time")
    parser.add_argument("--go-on", action="store_true", help="go on with an interrupted run instead of beginning anew")
    parser.add_argument("--report", action="store_true", help="only print what the last run found")
    parser.add_argument("only", nargs="*", help="patterns of mutants, for example 'qwen_cached_serve.core.*'")
    options = parser.parse_args()
    if not options.report:
        environment()
        if not options.go_on:
            workspace()
        run(options.children, options.only)
    return report(outcomes())


if __name__ == "__main__":
    sys.exit(main())
