"""The demo's figures: collected on the way, printed at the end, kept as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class PlanFigures:
    """What the plan or the status of one resource says; tokens."""

    block_size: int
    chunk_size: int
    max_num_batched_tokens: int

    def line(self) -> str:
        """The three figures in one line."""
        return f"N {self.block_size}, chunk {self.chunk_size}, {self.max_num_batched_tokens} tokens a step"


@dataclass
class Report:
    """Everything the summary shows; seconds are wall-clock times on this machine."""

    plans: dict[str, PlanFigures] = field(default_factory=dict)
    operator_ready_seconds: float = 0.0
    seconds_to_ready: float = 0.0
    block_size: int = 0
    chunk_size: int = 0
    max_num_batched_tokens: int = 0
    prompt_tokens: int = 0
    cold_seconds: float = 0.0
    local_hit_seconds: float = 0.0
    external_hit_seconds: float = 0.0
    external_hit_tokens: int = 0
    chunk_size_after_edit: int = 0
    roll_seconds: float = 0.0
    refused_edit: str = ""
    simulated: dict[str, PlanFigures] = field(default_factory=dict)
    delete_seconds: float = 0.0
    total_seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Write the figures as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    def summary(self) -> str:
        """The figures a person wants to see, a line each."""
        rows = [(f"plan {model}", figures.line()) for model, figures in self.plans.items()]
        probed = PlanFigures(self.block_size, self.chunk_size, self.max_num_batched_tokens)
        rows += [
            ("operator available", f"{self.operator_ready_seconds:.0f} s"),
            ("pod Ready", f"{self.seconds_to_ready:.0f} s after apply; {probed.line()}"),
            (f"{self.prompt_tokens}-token prompt, cold", f"{self.cold_seconds:.2f} s"),
            ("  again, engine's cache", f"{self.local_hit_seconds:.2f} s"),
            (
                "  engine killed, LMCache",
                f"{self.external_hit_seconds:.2f} s, {self.external_hit_tokens} external hit tokens",
            ),
            ("chunkBlocks edit", f"rolled in {self.roll_seconds:.0f} s, chunk {self.chunk_size_after_edit}"),
        ]
        rows += [(f"simulated {name}", figures.line()) for name, figures in self.simulated.items()]
        rows += [
            ("deleted", f"{self.delete_seconds:.0f} s"),
            ("whole demo", f"{self.total_seconds / 60:.1f} min"),
        ]
        return "\n".join(f"  {name:<28} {value}" for name, value in rows)
