"""What the checks found: verdicts, figures, remedies; as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

Figures = Mapping[str, float | int | str | None]


class Verdict(Enum):
    """What came of a check."""

    PASSES = "passes"
    FAILS = "fails"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: its number, what it asks, the bar, the figures (units in their names), and what to do."""

    number: int
    asks: str
    bar: str
    verdict: Verdict
    figures: Figures
    remedy: str = ""

    def lines(self) -> Iterator[str]:
        """Put it in words."""
        yield f"{self.number:>2} {self.verdict.value:<12} {self.asks} ({self.bar})"
        for name, value in self.figures.items():
            yield f"      {name} = {value:.6g}" if isinstance(value, float) else f"      {name} = {value}"
        if self.verdict is not Verdict.PASSES and self.remedy:
            yield f"      what to do: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and of what machine."""

    machine: Figures
    findings: tuple[CheckResult, ...]
    took_s: float

    @property
    def text(self) -> str:
        """The whole report, for people."""
        lines = ["the first hour of a GPU: reads only, no clock was changed", ""]
        lines += [f"{name:<10} {value}" for name, value in self.machine.items()]
        lines += ["", *(line for finding in self.findings for line in finding.lines()), ""]
        count = sum(one.verdict is Verdict.PASSES for one in self.findings)
        lines.append(f"{count} of {len(self.findings)} checks pass; took {self.took_s:.0f} s")
        return "\n".join(lines) + "\n"

    @property
    def json(self) -> str:
        """The same, for programs."""
        findings = [asdict(one) | {"verdict": one.verdict.value} for one in self.findings]
        whole = {"machine": dict(self.machine), "took_s": self.took_s, "findings": findings}
        return json.dumps(whole, indent=1) + "\n"

    def write(self, path: Path) -> Path:
        """Write the text, and the JSON beside it; return where that is."""
        beside = path.with_suffix(".json") if path.suffix != ".json" else path.with_suffix(".figures.json")
        path.write_text(self.text)
        beside.write_text(self.json)
        return beside
