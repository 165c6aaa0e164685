"""Every class of failure by its code: one catalogue for conditions, `qcs explain` and docs/troubleshooting.md."""

from __future__ import annotations

from qwen_cached_serve.core.causes import cache, cluster, device, engine, memory, model, pod, program
from qwen_cached_serve.core.causes.rule import FailureClass, Rule

_MODULES = (engine, memory, cache, device, model, program, cluster)
_CLASSES = (*pod.CLASSES, *(entry for module in _MODULES for entry in module.CLASSES))

FAILURES: dict[str, FailureClass] = {entry.code: entry for entry in _CLASSES}
if len(FAILURES) != len(_CLASSES):
    raise AssertionError("a failure class is defined twice")

RULES: tuple[Rule, ...] = tuple(rule for module in _MODULES for rule in module.RULES)
"""Order decides only between rules of one tier that match in the same line: the first one wins."""
OBSERVATIONS: tuple[Rule, ...] = cache.OBSERVATIONS


def troubleshooting_table() -> str:
    """Return the classes as Markdown, one table an area (docs/troubleshooting.md holds it between two markers)."""
    areas: dict[str, list[FailureClass]] = {}
    for entry in _CLASSES:
        areas.setdefault(entry.area, []).append(entry)
    parts = []
    for area, entries in areas.items():
        rows = [f"### {area}", "", "| code | what it means | field | what to do |", "| --- | --- | --- | --- |"]
        for entry in sorted(entries, key=lambda found: found.code):
            star = "*" if entry.heals else ""
            field = f"`{entry.field}`" if entry.field else ""
            cells = (f"`{entry.code}`{star}", entry.meaning, field, entry.remedy)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"
