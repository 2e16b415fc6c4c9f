"""How many changes of the code do the quick tests notice, room by room?

Run: ``python scripts/mutation/main.py [--room ROOM]... [--mutants N] [--survivors] [--fresh] [--json]``
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

import statements
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult
from mutants import Mutant, draw
from results import Results, judged
from rooms import Campaign, Room, campaign
from score import as_json, line_of, table
from trial import run_tests
from workplace import ROOT, surroundings, workplace

SESSION = ROOT / ".cache" / "mutation" / "session.sqlite"
LEAST_TIMEOUT_S, SLOWER = 120.0, 8.0


def main() -> int:
    """Draw, try what has no result yet, and print the score; interrupted, it goes on where it was."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave as at Ctrl-C: nothing stays behind
    statements.register()
    said = campaign()
    rooms = _asked(said, arguments)
    SESSION.parent.mkdir(parents=True, exist_ok=True)
    if arguments.fresh:
        SESSION.unlink(missing_ok=True)
    with Results(SESSION) as results, workplace() as copy:
        drawn = [mutant for room in rooms for mutant in draw(said, room, copy)]
        results.plan(drawn)
        if arguments.survivors:
            results.forget_survivors(drawn)
        if not arguments.score:
            for room in rooms:
                _try(room, results.pending(m for m in drawn if m.room == room.name), results, copy)
        found = judged(drawn, results)
    print(as_json(said, found) if arguments.json else table(said, found))
    return 0


def _try(room: Room, pending: list[Mutant], results: Results, copy: Path) -> None:
    """Test every mutant of a room that has no result yet."""
    if not pending:
        return
    timeout_s = _untouched_s(room, copy) * SLOWER + LEAST_TIMEOUT_S
    for count, mutant in enumerate(pending, start=1):
        change = mutant.mutation
        operator = get_operator(change.operator_name)()
        with (
            use_mutation(change.module_path, operator, change.occurrence),
            surroundings(copy, compiles=room.compiles) as said,
        ):
            outcome, output = run_tests(copy, room.tests, said, timeout_s)
        result = WorkResult(WorkerOutcome.NORMAL, output, outcome)
        results.keep(mutant, result)
        print(f"{room.name} {count}/{len(pending)}  {line_of(mutant, result)}", file=sys.stderr, flush=True)


def _untouched_s(room: Room, copy: Path) -> float:
    """How long the room's tests take, which must pass while nothing is changed."""
    begun_s = time.monotonic()
    with surroundings(copy, compiles=room.compiles) as said:
        outcome, output = run_tests(copy, room.tests, said, timeout_s=3600.0)
    if outcome is not TestOutcome.SURVIVED:
        raise SystemExit(f"mutation: the tests of {room.name} fail before anything is changed\n{output}")
    return time.monotonic() - begun_s


def _asked(said: Campaign, arguments: argparse.Namespace) -> list[Room]:
    by_name = {room.name: room for room in said.rooms}
    for name in arguments.room:
        if name not in by_name:
            raise SystemExit(f"mutation: there is no room '{name}' ({', '.join(by_name)})")
    return [by_name[name].of(arguments.mutants) for name in arguments.room or by_name]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", action="append", default=[], help="only this room; may be given again")
    parser.add_argument("--mutants", type=int, help="at most so many of each room")
    parser.add_argument("--survivors", action="store_true", help="try those again that nobody noticed")
    parser.add_argument("--score", action="store_true", help="try nothing, say what is known")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run found")
    parser.add_argument("--json", action="store_true", help="the score and every mutant as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
