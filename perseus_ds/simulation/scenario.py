"""What goes wrong in an emulated job: what is slow, capped, badly connected, starved or lost, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from pathlib import Path

import numpy as np

from perseus_ds.errors import ConfigError
from perseus_ds.files import read_table
from perseus_ds.profile import Profile
from perseus_ds.schedule import Instruction, Load, mean_load


class Trouble(Enum):
    """Kinds of stragglers; the value is the word on the command line."""

    SLOW = "slow"
    CAP = "cap"
    LINK = "link"
    INPUT = "input"
    LOST = "lost"
    ANNOUNCED = "announced"

    @property
    def amount(self) -> str:
        """What the number that comes with it is called; empty if it has no number."""
        return _AMOUNTS[self]


_AMOUNTS = {
    Trouble.SLOW: "factor",
    Trouble.CAP: "mhz",
    Trouble.LINK: "seconds",
    Trouble.INPUT: "seconds",
    Trouble.LOST: "",
    Trouble.ANNOUNCED: "factor",
}
_WHERE = ("pipeline", "rank", "gpu", "from", "to")


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One trouble of one pipeline, or of one of its ranks, or of one tensor-parallel GPU of that rank.

    ``amount``: SLOW multiplies durations. CAP is the highest clock that is reached (thermal or power cap, in
    MHz). LINK are seconds more for all that the rank sends; INPUT seconds before the first instruction.
    ANNOUNCED is reported from outside and slows nothing. It lasts from iteration ``first`` to ``last - 1``.
    """

    trouble: Trouble
    pipeline: int
    amount: float = 1.0
    rank: int | None = None
    gpu: int | None = None
    first: int = 0
    last: int | None = None

    def at(self, iteration: int) -> bool:
        """Whether it holds in an iteration."""
        return self.first <= iteration and (self.last is None or iteration < self.last)


def parse_disturbance(text: str) -> Disturbance:
    """Read ``slow:pipeline=1,factor=1.2,from=10,to=50`` (and ``rank=``, ``gpu=``).

    Raises:
        ConfigError: an unknown kind or key, a value that is not a number, or one that is missing.
    """
    kind, _, rest = text.partition(":")
    if kind not in {trouble.value for trouble in Trouble}:
        known = ", ".join(trouble.value for trouble in Trouble)
        raise ConfigError(f"straggler {text!r}: {kind!r} is not a kind", hint=f"kinds: {known}")
    trouble = Trouble(kind)
    values = _values(text, rest, {*_WHERE, trouble.amount} - {""})
    if "pipeline" not in values or (trouble.amount and trouble.amount not in values):
        needed = " and ".join(filter(None, ("pipeline", trouble.amount)))
        raise ConfigError(f"straggler {text!r} needs {needed}", hint=f"{kind}:{_example(trouble)}")
    whole = {key: _whole(text, key, values[key]) for key in _WHERE if key in values}
    return Disturbance(
        trouble,
        whole["pipeline"],
        _amount(text, trouble, values),
        whole.get("rank"),
        whole.get("gpu"),
        whole.get("from", 0),
        whole.get("to"),
    )


def check_disturbances(
    disturbances: Iterable[Disturbance], *, pipelines: int, ranks: int, tensor: int
) -> tuple[Disturbance, ...]:
    """Refuse what does not exist in the job.

    Raises:
        ConfigError: naming the pipeline, rank or GPU that is not there.
    """
    checked = []
    for one in disturbances:
        limits = {"pipeline": (one.pipeline, pipelines), "rank": (one.rank, ranks), "gpu": (one.gpu, tensor)}
        for name, (value, end) in limits.items():
            if value is not None and value >= end:
                raise ConfigError(
                    f"straggler {one.trouble.value}: {name} {value} does not exist",
                    hint=f"the job has {name}s 0 to {end - 1}",
                )
        checked.append(replace(one, rank=0) if one.gpu is not None and one.rank is None else one)
    return tuple(checked)


def _values(text: str, rest: str, known: set[str]) -> Mapping[str, str]:
    values = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key not in known or not equals:
            raise ConfigError(
                f"straggler {text!r}: {part!r} is not understood", hint=f"keys: {', '.join(sorted(known))}"
            )
        values[key] = value
    return values


def _whole(text: str, key: str, value: str) -> int:
    if not value.isdecimal():
        raise ConfigError(f"straggler {text!r}: {key} is {value!r}", hint="expected 0, 1, 2, ...")
    return int(value)


def _amount(text: str, trouble: Trouble, values: Mapping[str, str]) -> float:
    if not trouble.amount:
        return 1.0
    value = values[trouble.amount]
    least = 1.0 if trouble.amount == "factor" else 0.0
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount >= least):
        raise ConfigError(
            f"straggler {text!r}: {trouble.amount} is {value!r}", hint=f"expected a number from {least:g} on"
        )
    return amount


def _example(trouble: Trouble) -> str:
    amount = {"factor": ",factor=1.2", "mhz": ",mhz=1200", "seconds": ",seconds=0.05", "": ""}[trouble.amount]
    return f"pipeline=1{amount},from=10,to=50"


# The loads of an emulated job: a list of lengths from a file, or drawn from a distribution.

_MOST_BYTES = 64 << 20
_MOST_SIGMA = 5.0
_LOOKED_AT = 20  # iterations
_DRAWN = 1000  # microbatches whose mean stands for a distribution's
_PLACE = ("iteration", "replica", "microbatch")
_Draw = Callable[[np.random.Generator], float]


@dataclass(frozen=True, slots=True)
class EmulatedLoads:
    """What every microbatch works on, by (iteration, replica, microbatch); ``mean`` is the mean of all.

    ``listed`` are microbatches in turn, over and over. ``placed`` are those of a file that states where each
    stands, its iterations over and over. ``draw`` is a distribution, from a seed. ``source`` is the file.
    """

    mean: Load
    listed: tuple[Load, ...] = ()
    placed: Mapping[tuple[int, int, int], Load] | None = None
    iterations: int = 1
    draw: _Draw | None = None
    seed: int = 0
    source: str = ""

    def check(self, *, microbatches: int, pipelines: int | None = None) -> None:
        """Compare a file that states places with a job: all of its microbatches, and no others.

        Without ``pipelines`` the job has as many as the file.

        Raises:
            ConfigError: naming the file and what is missing, or what the job has not.
        """
        if self.placed is None:
            return
        replicas, deep = (1 + max(place[which] for place in self.placed) for which in (1, 2))
        for there, wanted, of in ((replicas, pipelines, "replica"), (deep, microbatches, "microbatch")):
            if wanted is not None and there > wanted:
                raise ConfigError(
                    f"{self.source} has a row for {of} {there - 1}, and the job has {wanted} of them",
                    hint="replicas and microbatches are counted from 0; give the job as many as the file has",
                )
        for place in product(range(self.iterations), range(pipelines or replicas), range(microbatches)):
            self._placed(*place)

    def of(self, iteration: int, *, pipelines: int, microbatches: int) -> list[list[Load]]:
        """Return the loads of an iteration.

        Shape: the result [pipelines][microbatches].

        Raises:
            ConfigError: the file states nothing of a microbatch.
        """
        if self.placed is not None:
            return [
                [self._placed(iteration % self.iterations, p, m) for m in range(microbatches)]
                for p in range(pipelines)
            ]
        if self.draw is not None:
            random = np.random.default_rng([self.seed, iteration])
            return [[_of(self.draw(random)) for _ in range(microbatches)] for _ in range(pipelines)]
        first = iteration * pipelines * microbatches
        return [
            [self.listed[(first + p * microbatches + m) % len(self.listed)] for m in range(microbatches)]
            for p in range(pipelines)
        ]

    def factors(
        self, profile: Profile, nodes: Sequence[Instruction], iteration: int, *, pipelines: int
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Return how many times its mean duration each computation takes in an iteration.

        By the profile's own fit, where it has one; else in proportion to the tokens.

        Shape: the result [pipelines, nodes].
        """
        microbatches = 1 + max(node.microbatch for node in nodes)
        loads = self.of(iteration, pipelines=pipelines, microbatches=microbatches)
        found = np.ones((pipelines, len(nodes)))
        for place, node in enumerate(nodes):
            if node.kind.is_computation:
                for p in range(pipelines):
                    found[p, place] = self._factor(profile, node, loads[p][node.microbatch])
        return found

    def variation(self, profile: Profile, nodes: Sequence[Instruction]) -> float:
        """By what share durations of a computation vary for their loads, over a few iterations."""
        computed = [place for place, node in enumerate(nodes) if node.kind.is_computation]
        several = [self.factors(profile, nodes, n, pipelines=1)[:, computed] for n in range(_LOOKED_AT)]
        found = np.concatenate(several)
        return float(found.std() / found.mean())

    def _factor(self, profile: Profile, node: Instruction, load: Load) -> float:
        fit = profile.loads.get((node.stage, node.kind))
        if fit is not None:
            return fit.factor(load, mean=self.mean)
        return load.tokens / self.mean.tokens if self.mean.tokens else 1.0

    def _placed(self, iteration: int, replica: int, microbatch: int) -> Load:
        assert self.placed is not None
        load = self.placed.get((iteration, replica, microbatch))
        if load is None:
            raise ConfigError(
                f"{self.source} has no row for iteration {iteration}, replica {replica}, "
                f"microbatch {microbatch}",
                hint="list every microbatch of the job, or lengths alone",
            )
        return load


def parse_loads(text: str, *, seed: int = 0) -> EmulatedLoads:
    """Read ``lognormal:SIGMA``, ``buckets:LENGTH[xWEIGHT],...`` or the name of a CSV file.

    The CSV has a column ``length``: a row for each microbatch, taken in turn. With the columns
    ``iteration,replica,microbatch`` a row is one sequence of that microbatch.

    Raises:
        ConfigError: naming the word, or the file and its row.
    """
    kind, colon, rest = text.partition(":")
    if colon and kind == "lognormal":
        sigma = _number(rest, f"loads {text!r}: sigma", most=_MOST_SIGMA)
        return _drawn(lambda random: float(random.lognormal(-(sigma**2) / 2.0, sigma)), seed)
    if colon and kind == "buckets":
        lengths, weights = zip(*(_bucket(part, text) for part in rest.split(",")), strict=True)
        share = np.array(weights) / sum(weights)
        return _drawn(lambda random: float(random.choice(lengths, p=share)), seed)
    if not Path(text).exists():
        raise ConfigError(
            f"loads {text!r:.200}: no such file",
            hint="expected a CSV file, lognormal:SIGMA or buckets:LENGTH[xWEIGHT],...",
        )
    return _read(Path(text))


def _drawn(draw: _Draw, seed: int) -> EmulatedLoads:
    random = np.random.default_rng(seed)
    return EmulatedLoads(mean_load([_of(draw(random)) for _ in range(_DRAWN)]), draw=draw, seed=seed)


def _bucket(part: str, text: str) -> tuple[float, float]:
    length, weighs, weight = part.partition("x")
    what = f"loads {text!r}: bucket {part!r}"
    return _number(length, what, above=0.0), _number(weight if weighs else "1", what, above=0.0)


def _read(path: Path) -> EmulatedLoads:
    placed = False
    lengths: dict[tuple[int, int, int], list[float]] = {}
    for where, row in read_table(path, ["length"], most_bytes=_MOST_BYTES):
        placed = _says_where(list(row), path)
        place = _place(row, where) if placed else (len(lengths), 0, 0)
        lengths.setdefault(place, []).append(_number(row["length"], f"{where}: length"))
    if not lengths:
        raise ConfigError(f"{path}: no row", hint="expected one length a row")
    loads = {place: Load.of_lengths(of_one) for place, of_one in lengths.items()}
    mean = mean_load(list(loads.values()))
    if not mean.tokens:
        raise ConfigError(f"{path}: every length is 0", hint="expected at least one above 0")
    if not placed:
        return EmulatedLoads(mean, listed=tuple(loads.values()), source=str(path))
    iterations = 1 + max(place[0] for place in loads)
    return EmulatedLoads(mean, placed=loads, iterations=iterations, source=str(path))


def _says_where(columns: Sequence[str], path: Path) -> bool:
    """Whether rows state where their microbatch stands; refuse columns that mean neither."""
    if sorted(columns) not in (["length"], sorted(["length", *_PLACE])):
        raise ConfigError(
            f"{path} has the columns {', '.join(columns) or 'none'}",
            hint="expected length, or iteration,replica,microbatch,length",
        )
    return len(columns) > 1


def _place(row: Mapping[str, str | None], where: str) -> tuple[int, int, int]:
    found = []
    for name in _PLACE:
        value = row[name] or ""
        if not (value.isascii() and value.isdecimal() and len(value) <= 9):  # noqa: PLR2004  # a billion
            raise ConfigError(f"{where}: {name} is {value!r:.40}", hint="expected 0, 1, 2, ...")
        found.append(int(value))
    return found[0], found[1], found[2]


def _number(text: str | None, what: str, *, above: float | None = None, most: float = 1e12) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (0.0 <= value <= most) or (above is not None and value <= above):
        least = "above 0" if above is not None else "0 or more"
        raise ConfigError(f"{what} is {text!r:.40}", hint=f"expected a number, {least}, {most:g} at most")
    return value


def _of(length: float) -> Load:
    return Load(length, length * length)
