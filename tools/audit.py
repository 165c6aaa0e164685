"""
Known vulnerabilities of everything that is pinned: `python -m tools.audit` (`make audit`).

pip-audit, in an environment of its own, asks the advisory service about every hashed requirement file. Where the
service cannot be reached (an inner mirror has packages and no advisories), this says so in one line and ends with 0:
there is nothing to judge from. A vulnerability ends with 1, and so does a file that was not judged while others were.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import environments

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "audit"
REQUIREMENTS = ROOT / "requirements" / "audit.txt"


@dataclass(frozen=True)
class Finding:
    """One vulnerability of one pin."""

    file: str
    package: str
    advisory: str
    fixed_in: str

    def __str__(self) -> str:
        return f"{self.file}: {self.package} has {self.advisory}, fixed in {self.fixed_in or 'no release yet'}"


@dataclass(frozen=True)
class Outcome:
    """What an audit of one file said."""

    findings: tuple[Finding, ...]
    judged: int
    """Packages that the service knew."""
    skipped: tuple[str, ...]
    """Packages that it did not know."""


def files() -> list[Path]:
    """Every hashed requirement file of what is shipped or built with; old engines for comparison are old on purpose."""
    found = [*(ROOT / "requirements").glob("*.txt"), *(ROOT / "images").rglob("*.txt")]
    return sorted(path for path in found if "--hash=" in path.read_text())


def outcome(file: str, report: dict[str, Any]) -> Outcome:
    """Read pip-audit's JSON about a file."""
    dependencies = report["dependencies"]
    judged = [one for one in dependencies if "skip_reason" not in one]
    found = [
        Finding(file, f"{one['name']} {one['version']}", vulnerability["id"], ", ".join(vulnerability["fix_versions"]))
        for one in judged
        for vulnerability in one["vulns"]
    ]
    skipped = tuple(one["name"] for one in dependencies if "skip_reason" in one)
    return Outcome(tuple(found), len(judged), skipped)


def words(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """What a person should read."""
    for finding in (finding for one in outcomes.values() for finding in one.findings):
        yield str(finding)
    judged = sum(one.judged for one in outcomes.values())
    if not judged:
        yield "audit: not done, the advisory service cannot be reached from here or knows none of the packages"
        return
    for name in not_judged(outcomes):
        yield f"audit: {name} was not judged; run it again"
    unknown = sorted({name for one in outcomes.values() for name in one.skipped})
    if unknown:
        yield f"audit: not known to the advisory service: {', '.join(unknown)}"
    found = sum(len(one.findings) for one in outcomes.values())
    yield f"audit: {len(outcomes)} files, {judged} pins judged, {found} vulnerabilities"


def not_judged(outcomes: dict[str, Outcome]) -> list[str]:
    """Files that the service said nothing about although it answered for others."""
    left = [name for name, one in outcomes.items() if not one.judged and not one.skipped]
    return left if any(one.judged for one in outcomes.values()) else []


def audit(program: Path, paths: Iterable[Path]) -> dict[str, Outcome]:
    """Ask the service about files; one that cannot be asked at all has no judged package."""
    outcomes = {}
    for path in paths:
        command = [str(program), "--progress-spinner=off", "--require-hashes", "--disable-pip", "-f", "json"]
        done = subprocess.run([*command, "-r", str(path)], capture_output=True, text=True, check=False)
        name = str(path.relative_to(ROOT))
        try:
            outcomes[name] = outcome(name, json.loads(done.stdout))
        except ValueError:
            print(f"{name}: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}", file=sys.stderr)
            outcomes[name] = Outcome((), 0, ())
    return outcomes


def pip_audit() -> Path:
    """The program, in an environment that is made when its pins have changed."""
    key = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    made = environments.ensure(HOME / key, lambda target: environments.install(target, REQUIREMENTS))
    return made.with_name("pip-audit")


def main() -> int:
    """Entry point of `python -m tools.audit`."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    outcomes = audit(pip_audit(), files())
    for line in words(outcomes):
        print(line)
    return int(any(one.findings for one in outcomes.values()) or bool(not_judged(outcomes)))


if __name__ == "__main__":
    sys.exit(main())
