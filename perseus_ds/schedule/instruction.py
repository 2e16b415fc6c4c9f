"""An instruction: what one rank does once per iteration for one model stage; prints as ``2F0``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from perseus_ds.errors import ConfigError, ScheduleError

_TEXT = re.compile(r"(\d+)([A-Z]+)(\d+)", re.ASCII)


class Kind(Enum):
    """Kind of an instruction; the value is its letter in text and in files.

    A backward is whole (``B``), or split. The stage before waits for the input gradient (``I``); the weight
    gradient (``W``) may follow at any distance. ``UNKNOWN`` is work of the host that we have no word for and
    that takes the time it takes. ``UNKNOWN_COMPUTE`` is such work that computes for long, so that a plan
    chooses a clock for it. ``COMMIT`` waits for all transfers queued before it.
    """

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    LOAD = "L"
    SEND_ACTIVATION = "SA"
    RECV_ACTIVATION = "RA"
    SEND_GRAD = "SG"
    RECV_GRAD = "RG"
    COMMIT = "CM"
    REDUCE_TIED = "RT"
    REDUCE_GRADS = "AR"
    STEP = "OS"
    UNKNOWN = "X"
    UNKNOWN_COMPUTE = "XC"

    __hash__ = object.__hash__  # there is one of each; Enum's own, of the name, is a call of Python each time

    @property
    def is_computation(self) -> bool:
        """Return whether its duration follows the clock, so that a plan chooses one for it."""
        return self in _COMPUTATIONS

    @property
    def is_transfer(self) -> bool:
        """Return whether it is one end of a point-to-point transfer between neighbouring stages."""
        return self in _TRANSFERS

    @property
    def words(self) -> str:
        """Return what a reader calls it."""
        return self.name.lower().replace("_", " ")


_KINDS = {kind.value: kind for kind in Kind}
_COMPUTATIONS = frozenset(
    {Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT, Kind.UNKNOWN_COMPUTE}
)
_TRANSFERS = frozenset({Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION, Kind.SEND_GRAD, Kind.RECV_GRAD})


@dataclass(frozen=True, slots=True, order=False)
class Instruction:
    """The n-th run of ``kind`` for model stage ``stage``: ``2F0`` is stage 2's forward of microbatch 0.

    A model stage is a part of the model (``stage_index`` of torch.distributed.pipelining), not a pipeline
    rank: a rank may run several. What a rank does as a whole (loading, commits, the step) bears its lowest.
    """

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Instruction:
        """Read back what ``str`` printed.

        Raises:
            ScheduleError: the text is not ``<stage><kind><microbatch>``.
        """
        match = _TEXT.fullmatch(text)
        if match is None or match[2] not in _KINDS:
            raise ScheduleError(
                f"instruction {text!r} is not <stage><kind><microbatch> like 2F0",
                hint=f"kinds: {' '.join(_KINDS)}",
            )
        return cls(int(match[1]), _KINDS[match[2]], int(match[3]))


# How much a microbatch works on: what its computations' durations depend on beside the clock.

MOST_LOAD = 1e30
"""Tokens, squares: what is more is no length of anything, and its sums are not finite."""


@dataclass(frozen=True, slots=True)
class Load:
    """Amount of work in one microbatch, counted before it is computed.

    ``tokens`` is the sum of its sequences' lengths; elements where nothing states what a sequence is.
    ``squares`` is the sum of the squared lengths, with which attention grows.

    Raises:
        ConfigError: a number that is negative or not finite.
    """

    tokens: float
    squares: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("squares", self.squares)):
            if not 0.0 <= value <= MOST_LOAD:
                raise ConfigError(f"a load's {name} are {value}", hint="expected a finite number, 0 or more")

    @classmethod
    def of_lengths(cls, lengths: Iterable[float]) -> Load:
        """Count sequences of these lengths (tokens)."""
        known = list(lengths)
        if min(known, default=0.0) < 0.0:
            raise ConfigError(f"a length is {min(known)}", hint="expected 0 or more")
        return cls(math.fsum(known), math.fsum(length * length for length in known))

    @classmethod
    def of_shape(cls, shape: Iterable[int]) -> Load:
        """Count a tensor [samples, ...] whose samples are sequences as long as they have elements."""
        samples, *rest = (*shape, 1)
        length = float(math.prod(rest))
        return cls(samples * length, samples * length * length)

    def __add__(self, other: Load) -> Load:
        return Load(self.tokens + other.tokens, self.squares + other.squares)

    def times(self, share: float) -> Load:
        """Return so many times as much of everything."""
        return Load(share * self.tokens, share * self.squares)


def mean_load(loads: Sequence[Load]) -> Load:
    """Return the mean of some loads."""
    return Load(
        math.fsum(load.tokens for load in loads) / len(loads),
        math.fsum(load.squares for load in loads) / len(loads),
    )
