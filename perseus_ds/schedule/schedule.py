"""Schedules: the instructions of every pipeline rank in one iteration, and how much they work on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from perseus_ds.errors import ConfigError, ScheduleError

_TEXT = re.compile(r"(\d+)([A-Z]+)(\d+)(?:\+(\d+)B(\d+))?", re.ASCII)


_COMPUTATIONS = frozenset({"F", "B", "I", "W", "FB", "XC"})
_TRANSFERS = frozenset({"SA", "RA", "SG", "RG"})


class Kind(Enum):
    """Kind of an instruction; the value is its letter in text and in files.

    A backward is whole (``B``), or split. The stage before waits for the input gradient (``I``); the weight
    gradient (``W``) may follow at any distance. ``FB`` is a forward and the whole backward of another
    microbatch at once: the communication of one hides behind the computation of the other. ``UNKNOWN`` is
    work of the host that we have no word for and that takes the time it takes. ``UNKNOWN_COMPUTE`` is such
    work that computes for long, so that a plan chooses a clock for it. ``COMMIT`` waits for all transfers
    queued before it.

    The duration of one that ``is_computation`` follows the clock, so that a plan chooses one for it. In one
    that ``runs_forward`` a microbatch passes forward, alone or beside a backward. One that ``is_transfer`` is
    one end of a point-to-point transfer between neighbouring stages.
    """

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    FORWARD_BACKWARD = "FB"
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

    def __init__(self, letter: str) -> None:
        # plain attributes: asked for around every instruction of a job
        self.is_computation = letter in _COMPUTATIONS
        self.runs_forward = letter in {"F", "FB"}
        self.is_transfer = letter in _TRANSFERS

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


_KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True, order=False)
class Instruction:
    """The n-th run of ``kind`` for model stage ``stage``: ``2F0`` is stage 2's forward of microbatch 0.

    A model stage is a part of the model (``stage_index`` of torch.distributed.pipelining), not a pipeline
    rank: a rank may run several. What a rank does as a whole (loading, commits, the step) bears its lowest.

    An ``FB`` bears its forward's stage and microbatch, and in ``backward`` those of the backward that runs at
    the same time: ``2F5+0B3``. Its time and power are kept under the forward's stage.
    """

    stage: int
    kind: Kind
    microbatch: int
    backward: tuple[int, int] | None = None

    @classmethod
    def combine(cls, forward: Instruction, backward: Instruction) -> Instruction:
        """Return a forward and a whole backward of one rank as the instruction that runs both at once."""
        beside = backward.stage, backward.microbatch
        return cls(forward.stage, Kind.FORWARD_BACKWARD, forward.microbatch, beside)

    @property
    def parts(self) -> tuple[Instruction, ...]:
        """Return the forward and the backward of an ``FB``; any other instruction is its only part."""
        if self.backward is None:
            return (self,)
        stage, microbatch = self.backward
        forward = Instruction(self.stage, Kind.FORWARD, self.microbatch)
        return forward, Instruction(stage, Kind.BACKWARD, microbatch)

    def __str__(self) -> str:
        if self.backward is not None:
            return "+".join(map(str, self.parts))
        return f"{self.stage}{self.kind.value}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Instruction:
        """Read back what ``str`` printed.

        Raises:
            ScheduleError: the text is neither ``<stage><kind><microbatch>`` nor a forward and a backward.
        """
        match = _TEXT.fullmatch(text)
        kind = _KINDS.get(match[2]) if match else None
        if match is None or kind in {None, Kind.FORWARD_BACKWARD} or (match[4] and match[2] != "F"):
            raise ScheduleError(
                f"instruction {text!r} is not <stage><kind><microbatch> like 2F0, or like 2F5+0B3",
                hint=f"kinds: {' '.join(_KINDS)}",
            )
        if match[4]:
            return cls(int(match[1]), Kind.FORWARD_BACKWARD, int(match[3]), (int(match[4]), int(match[5])))
        return cls(int(match[1]), kind, int(match[3]))


# The order of instructions of every pipeline rank in one iteration.

Order = tuple[Instruction, ...]
_BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT})


@dataclass(frozen=True, slots=True)
class Schedule:
    """All orders of one iteration, one per pipeline rank.

    The orders state which model stages a rank runs. Transfers that stand in them are rendezvous; orders
    without any hand their results over through buffers (`dag_of` shows both). ``unknown`` names the host's
    instructions that are carried as ``Kind.UNKNOWN``.
    """

    name: str
    microbatches: int
    orders: tuple[Order, ...]
    unknown: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of pipeline ranks: GPUs of one pipeline, its tensor-parallel peers counted as one."""
        return len(self.orders)

    @property
    def stages(self) -> int:
        """Number of model stages, all ranks together."""
        return 1 + max((i.stage for order in self.orders for i in order), default=-1)

    @property
    def stages_of_ranks(self) -> tuple[tuple[int, ...], ...]:
        """The model stages of every rank, lowest first."""
        return tuple(tuple(sorted({i.stage for i in order})) for order in self.orders)

    @property
    def has_chunks(self) -> bool:
        """Return whether a rank runs another model stage than its own number, or several."""
        return any(held != (rank,) for rank, held in enumerate(self.stages_of_ranks))

    def rank_of_stages(self) -> Mapping[int, int]:
        """Return which rank runs each model stage."""
        return {stage: rank for rank, held in enumerate(self.stages_of_ranks) for stage in held}

    def parts(self) -> dict[Instruction, Instruction]:
        """Return what runs each forward, each backward and all else: itself, or an ``FB`` of two of them."""
        return {part: i for order in self.orders for i in order for part in i.parts}


def first_forwards(order: Order) -> frozenset[Instruction]:
    """The first forward of every stage: gathered parameters are waited for there."""
    first: dict[int, Instruction] = {}
    for instruction in order:
        if instruction.kind.runs_forward:
            first.setdefault(instruction.stage, instruction)
    return frozenset(first.values())


def last_backwards(order: Order) -> frozenset[Instruction]:
    """The last backward of every stage, whole or split: hooks start the gradients' reduction there."""
    return frozenset({p.stage: i for i in order for p in i.parts if p.kind in _BACKWARDS}.values())


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

    @classmethod
    def mean_of(cls, loads: Sequence[Load]) -> Load:
        """Return the mean of some loads."""
        count = len(loads)
        return cls(
            math.fsum(one.tokens for one in loads) / count, math.fsum(one.squares for one in loads) / count
        )

    def __add__(self, other: Load) -> Load:
        return Load(self.tokens + other.tokens, self.squares + other.squares)
