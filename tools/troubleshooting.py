"""Write the table of failure classes into docs/troubleshooting.md (`python -m tools.troubleshooting`)."""

from __future__ import annotations

import argparse
from pathlib import Path

from qwen_cached_serve.core.failures import troubleshooting_table

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "troubleshooting.md"
BEGIN, END = "<!-- begin of the generated table -->\n", "<!-- end of the generated table -->\n"


def main() -> None:
    """Replace what stands between the two markers."""
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{troubleshooting_table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
