"""The score, room by room: for people, and as JSON."""

from __future__ import annotations

import json
from collections import Counter

from cosmic_ray.work_item import WorkResult
from mutants import Mutant
from results import Judged
from rooms import Campaign


def table(campaign: Campaign, found: list[Judged]) -> str:
    """Return a line for every room, then what nobody noticed."""
    lines = [f"{'room':<12}{'killed':>8}{'of':>6}{'score':>9}{'bar':>7}"]
    for name, row in _rows(campaign, found).items():
        bar = "" if row["bar"] is None else f"{row['bar']:.0f} %"
        score = "" if row["score"] is None else f"{row['score']:.1f} %"
        lines.append(f"{name:<12}{row['killed']:>8}{row['tried']:>6}{score:>9}{bar:>7}")
    lines += [_survivor(one) for one in found if one.verdict == "survived"]
    untried = sum(one.verdict == "untried" for one in found)
    return "\n".join(lines + ([f"{untried} not tried yet"] if untried else []))


def as_json(campaign: Campaign, found: list[Judged]) -> str:
    """Return scores and every mutant."""
    mutants = [
        {
            "room": one.mutant.room,
            "file": one.mutant.file,
            "in": one.mutant.mutation.definition_name,
            "line": one.mutant.line,
            "becomes": one.mutant.becomes,
            "verdict": one.verdict,
            "by": one.by,
        }
        for one in found
    ]
    return json.dumps({"seed": campaign.seed, "rooms": _rows(campaign, found), "mutants": mutants}, indent=1)


def line_of(mutant: Mutant, result: WorkResult) -> str:
    """State in one line what became of a mutant."""
    verdict = "killed  " if result.is_killed else "SURVIVED"
    return f"{verdict} {mutant.file}: {mutant.line}  ->  {mutant.becomes}"


def _rows(campaign: Campaign, found: list[Judged]) -> dict[str, dict[str, float | None]]:
    bars = {room.name: room.bar for room in campaign.rooms}
    names = list(dict.fromkeys(one.mutant.room for one in found))
    rows = {name: _row([one for one in found if one.mutant.room == name], bars[name]) for name in names}
    return rows | {"overall": _row(found, campaign.overall)}


def _row(found: list[Judged], bar: float | None) -> dict[str, float | None]:
    count = Counter(one.verdict for one in found)
    tried = count["killed"] + count["survived"]
    score = 100.0 * count["killed"] / tried if tried else None
    return {
        "killed": count["killed"],
        "tried": tried,
        "equivalent": count["equivalent"],
        "untried": count["untried"],
        "score": score,
        "bar": bar,
    }


def _survivor(one: Judged) -> str:
    mutant = one.mutant
    inside = mutant.mutation.definition_name
    return f"\n{mutant.room}  {mutant.file}  in {inside}\n  - {mutant.line}\n  + {mutant.becomes}"
