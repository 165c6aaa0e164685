"""
Writes what an image holds as CycloneDX 1.6: `python3 sbom.py NAME VERSION --root FOLDER > sbom.cdx.json`.

Python packages of the interpreter that runs this, from their own metadata, and Debian packages of the file system below
FOLDER, from dpkg's. Standard library only. No times and no random serial number: the same content gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import Parser
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def document(name: str, version: str, components: Sequence[Component]) -> dict[str, Any]:
    """The whole bill of materials, its components in order of their package URLs."""
    by_purl = {component["purl"]: component for component in components}
    main = {"type": "container", "bom-ref": name, "name": name, "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": [by_purl[purl] for purl in sorted(by_purl)],
    }


def python_package(distribution: Distribution) -> Component:
    """A distribution, its licence as an expression where it gives one (PEP 639), else in its own words."""
    name, version = distribution.metadata["Name"], distribution.version
    found = _component(f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version)}", name, version)
    words = licence_words(distribution)
    if expression := _field(distribution, "License-Expression"):
        found["licenses"] = [{"expression": expression}]
    elif words:
        found["licenses"] = [{"license": {"name": words}}]
    return found


def licence_words(distribution: Distribution) -> str:
    """The licence as the package's metadata say it: expression, classifiers, or the first line of the licence field."""
    if expression := _field(distribution, "License-Expression"):
        return expression
    classifiers = [
        line.rpartition(" :: ")[2] for line in distribution.metadata.get_all("Classifier") or () if "License ::" in line
    ]
    if named := [words for words in classifiers if words != "OSI Approved"]:
        return ", ".join(sorted(named))
    return _field(distribution, "License").strip().partition("\n")[0]


def _field(distribution: Distribution, name: str) -> str:
    # Not by index: asking for a field that is not there is an error from Python 3.14 on.
    return str((distribution.metadata.get_all(name) or [""])[0])


def debian_packages(root: Path) -> Iterator[Component]:
    """Installed packages below a root: dpkg's one file, or one file each as in images without dpkg itself."""
    folder = root / "var" / "lib" / "dpkg"
    files = [folder / "status", *sorted((folder / "status.d").glob("*"))]
    for text in (path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()):
        for stanza in filter(str.strip, text.split("\n\n")):
            fields = Parser().parsestr(stanza)
            state = fields.get("Status", "install ok installed")
            if fields.get("Package") and fields.get("Version") and state.endswith(" installed"):
                yield _debian_package(fields)


def _debian_package(fields: Message) -> Component:
    name, version, architecture = fields["Package"], fields["Version"], fields.get("Architecture", "all")
    return _component(f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}", name, version)


def _component(purl: str, name: str, version: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("version")
    parser.add_argument("--root", type=Path, required=True)
    asked = parser.parse_args(argv)
    python = [python_package(distribution) for distribution in distributions()]
    made = document(asked.name, asked.version, [*python, *debian_packages(asked.root)])
    json.dump(made, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
