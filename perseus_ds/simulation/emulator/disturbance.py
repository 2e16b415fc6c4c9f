"""What goes wrong in an emulated job: what is slow, capped, badly connected, starved or lost, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from perseus_ds.errors import ConfigError


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
