"""The rooms as ``rooms.toml`` has them, and the mutants that were judged to change nothing."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Room:
    """Files that are mutated, the quick tests that must notice, and how many mutants are drawn."""

    name: str
    mutates: list[str]
    tests: list[str]
    mutants: int
    apart: list[str] = field(default_factory=list)
    bar: float | None = None
    compiles: bool = False

    def files(self, root: Path) -> list[Path]:
        """The room's modules, relative to ``root``."""
        kept = set(_modules(root, self.mutates)) - set(_modules(root, self.apart))
        return sorted(path.relative_to(root) for path in kept)

    def of(self, most: int | None) -> Room:
        """The same room with at most so many mutants."""
        return self if most is None else replace(self, mutants=min(most, self.mutants))


@dataclass(frozen=True)
class Campaign:
    """The content of ``rooms.toml``."""

    seed: int
    operators: list[str]
    overall: float
    rooms: list[Room]


def campaign() -> Campaign:
    """Read ``rooms.toml``."""
    said = tomllib.loads((HERE / "rooms.toml").read_text())
    rooms = [Room(name, **row) for name, row in said["rooms"].items()]
    return Campaign(said["seed"], said["operators"], said["bars"]["overall"], rooms)


def equivalent() -> dict[tuple[str, str, str], str]:
    """Why a mutant does not count: by file, the line as it is, and the line as it would be."""
    said = tomllib.loads((HERE / "equivalent.toml").read_text())
    return {(row["file"], row["line"], row["becomes"]): row["because"] for row in said.get("mutant", [])}


def _modules(root: Path, places: list[str]) -> list[Path]:
    found = [root / place for place in places]
    return [p for place in found for p in ([place] if place.is_file() else place.rglob("*.py"))]
