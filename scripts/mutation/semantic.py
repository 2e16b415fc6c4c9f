"""Do the quick tests notice what a person would get wrong? Changes of meaning, from `semantic.toml`.

Run: ``python scripts/mutation/semantic.py [--room ROOM]... [--mutants N --seed S] [--survivors] [--json]``
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.work_item import TestOutcome
from rooms import HERE, Room, campaign
from trial import run_tests
from workplace import ROOT, surroundings, workplace

KEPT = ROOT / ".cache" / "mutation" / "semantic.json"
TIMEOUT_S = 900.0
BAR_PCT = 85.0


@dataclass(frozen=True)
class SemanticMutant:
    """One change of meaning: ``line`` stands once in ``file`` and ``becomes`` something else."""

    room: str
    file: str
    what: str
    line: str
    becomes: str
    apart: bool = False
    """Found from outside, before there were tests for it: not counted among our own."""

    def text(self, root: Path) -> str:
        """The file as it would be.

        Raises:
            ValueError: the line is not there, or there more than once: the product has moved on.
        """
        source = (root / self.file).read_text()
        if source.count(self.line) != 1:
            raise ValueError(f"{self.what}: {source.count(self.line)} times in {self.file}: {self.line}")
        return source.replace(self.line, self.becomes)


def mutants() -> list[SemanticMutant]:
    """Read `semantic.toml`."""
    content = tomllib.loads((HERE / "semantic.toml").read_text())
    return [SemanticMutant(**row) for row in content["mutant"]]


def main() -> int:
    """Try what has no result yet, and print the score; exit code 1 below the bar."""
    arguments = _arguments()
    drawn = [one for one in mutants() if not arguments.room or one.room in arguments.room]
    if arguments.mutants is not None:
        drawn = random.Random(arguments.seed).sample(drawn, min(arguments.mutants, len(drawn)))  # noqa: S311
    known = json.loads(KEPT.read_text()) if KEPT.exists() and not arguments.fresh else {}
    verdicts = {one.what: known[one.what] for one in drawn if known.get(one.what, {}).get("line") == one.line}
    pending = [
        one
        for one in drawn
        if one.what not in verdicts or (arguments.survivors and verdicts[one.what]["by"] is None)
    ]
    rooms = {room.name: room for room in campaign().rooms}
    with workplace() as copy:
        for mutant in pending:
            by = _noticed_by(mutant, rooms[mutant.room], copy)
            verdicts[mutant.what] = {"room": mutant.room, "line": mutant.line, "by": by}
            KEPT.parent.mkdir(parents=True, exist_ok=True)
            KEPT.write_text(json.dumps(known | verdicts, indent=1))
            print(
                f"{'killed  ' if by else 'SURVIVED'} {mutant.room}: {mutant.what}",
                file=sys.stderr,
                flush=True,
            )
    killed, tried = (
        Counter(one["room"] for one in verdicts.values() if wanted(one)) for wanted in (_killed, bool)
    )
    score_pct = 100.0 * killed.total() / max(1, tried.total())
    if arguments.json:
        print(
            json.dumps(
                {"killed": killed, "tried": tried, "score_pct": score_pct, "mutants": verdicts}, indent=1
            )
        )
    else:
        print("\n".join(f"{room:<12}{killed[room]:>4} of {tried[room]:>3}" for room in sorted(tried)))
        print(f"{'all':<12}{killed.total():>4} of {tried.total():>3}  {score_pct:.1f} % (bar {BAR_PCT:g} %)")
    return 0 if score_pct >= BAR_PCT else 1


def _killed(verdict: dict[str, object]) -> bool:
    return verdict["by"] is not None


def _noticed_by(mutant: SemanticMutant, room: Room, copy: Path) -> str | None:
    """Run the room's quick tests on the changed copy, the nearest first; return the first that fails."""
    path = copy / mutant.file
    before = path.read_text()
    path.write_text(mutant.text(copy))
    try:
        with surroundings(copy, compiles=room.compiles) as environment:
            for tests in filter(None, (_nearest(mutant, room, copy), room.tests)):
                outcome, output = run_tests(copy, tests, environment, TIMEOUT_S)
                if outcome is not TestOutcome.SURVIVED:
                    failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
                    return failed[0].split(" - ")[0] if failed else output.strip().splitlines()[-1][:100]
    finally:
        path.write_text(before)
    return None


def _nearest(mutant: SemanticMutant, room: Room, copy: Path) -> list[str]:
    """The room's test files that import the changed module, or bear its name."""
    module = Path(mutant.file).with_suffix("")
    dotted = ".".join(module.parts)
    files = [path for place in room.tests for path in (copy / place).rglob("test_*.py")]
    return [
        str(path.relative_to(copy))
        for path in files
        if module.name in path.stem or f"from {dotted} import" in path.read_text()
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", action="append", default=[], help="only this room; may be given again")
    parser.add_argument("--mutants", type=int, help="draw so many")
    parser.add_argument("--seed", type=int, default=1, help="of that draw (default 1)")
    parser.add_argument("--survivors", action="store_true", help="try those again that no test noticed")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run found")
    parser.add_argument("--json", action="store_true", help="every verdict as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
