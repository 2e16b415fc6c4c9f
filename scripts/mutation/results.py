"""What was found so far, in cosmic-ray's own session file: a run that is ended goes on from there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import WorkItem, WorkResult
from mutants import Mutant
from rooms import equivalent


class Results:
    """The session: mutants that were drawn once, by name, and the result of each that was tried."""

    def __init__(self, path: Path) -> None:
        self._db = WorkDB(path, WorkDB.Mode.create)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def plan(self, drawn: Iterable[Mutant]) -> None:
        """Add what was not there yet."""
        known = {item.job_id for item in self._db.work_items}
        new = [WorkItem.single(m.name, m.mutation) for m in drawn if m.name not in known]
        self._db.add_work_items(new)
        self.found = dict(self._db.results)

    def pending(self, drawn: Iterable[Mutant]) -> list[Mutant]:
        """Return those without a result, that would change something."""
        nothing_changes = equivalent()
        return [
            mutant
            for mutant in drawn
            if mutant.name not in self.found and mutant.change not in nothing_changes
        ]

    def keep(self, mutant: Mutant, result: WorkResult) -> None:
        """Write one result down."""
        self._db.set_result(mutant.name, result)
        self.found[mutant.name] = result

    def forget_survivors(self, drawn: Iterable[Mutant]) -> None:
        """Try those again that no test noticed."""
        for mutant in drawn:
            if mutant.name in self.found and not self.found[mutant.name].is_killed:
                del self.found[mutant.name]


@dataclass(frozen=True)
class Judged:
    """A mutant and what became of it: ``killed``, ``survived``, ``equivalent`` or ``untried``."""

    mutant: Mutant
    verdict: str
    by: str = ""


def judged(drawn: Iterable[Mutant], results: Results) -> list[Judged]:
    """State of each mutant what is known."""
    nothing_changes = equivalent()
    return [_judged(mutant, results.found.get(mutant.name), nothing_changes) for mutant in drawn]


def _judged(
    mutant: Mutant, result: WorkResult | None, nothing_changes: dict[tuple[str, str, str], str]
) -> Judged:
    if result is not None and result.is_killed:
        return Judged(mutant, "killed", first_failure(result))
    because = nothing_changes.get(mutant.change)
    if because is not None:
        return Judged(mutant, "equivalent", because)
    return Judged(mutant, "untried" if result is None else "survived")


def first_failure(result: WorkResult) -> str:
    """Name the test that noticed, or that nothing came to an end."""
    output = result.output or ""
    failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else output.strip().splitlines()[-1][:100]
