"""Protocol that a training framework supplies for a job to be served, and the calls that it makes.

An adapter knows its framework and nothing of us; the runtime knows this file and no framework. Every adapter
passes `AdapterContract` (tests/contract/adapter_contract.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch

from perseus_ds.schedule import Instruction, Kind, Load, Order, Schedule


@dataclass(frozen=True, slots=True)
class Batch:
    """Facts of an iteration at its begin: batches of as many microbatches can run the same plan.

    ``shape`` is the microbatch's where the framework knows it beforehand ("2 x 4096"), else empty. ``loads``
    are those of all its microbatches, in order, where this rank knows them before the first instruction.

    Shape: ``loads`` [microbatches].
    """

    microbatches: int
    shape: str = ""
    loads: tuple[Load, ...] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Place of one rank and the order that it runs, as it reports it to all others.

    ``pipeline_rank`` is the row of `Schedule.orders` that it runs, ``order`` that row as its own framework
    will run it. ``replica`` numbers the pipelines that wait for each other; tensor-parallel peers share both.
    ``parameters`` [model stage] and ``weights`` [model stage] (those that multiply: what a stage computes
    grows with them) cover the model stages that this rank holds. ``unknown`` names the framework's
    instructions that stand in the order as `Kind.UNKNOWN`. ``left_out`` are those computations of the order
    that contain a wait for others (`first_forwards`, `last_backwards`): their durations show nothing of a
    clock. ``inputs`` are the shapes of the first batch, from ranks that see it. ``modules`` states how this
    rank's modules are run where that changes their durations (`describe_modules`). ``untested`` names a
    release of the framework that nobody has tried. ``coupled`` are the ranks of the job that this one meets
    within every computation, in whatever replica: experts exchange tokens there. Their replicas run one plan,
    as a set (`in_sets`). Ranks of one place meet there anyway. ``replayed``: nothing can be done between two
    instructions of an iteration (one graph holds them all, or it is compiled), so that none is announced.
    """

    pipeline_rank: int
    replica: int
    order: Order
    parameters: Mapping[int, int]
    weights: Mapping[int, float]
    dtypes: str
    unknown: tuple[str, ...] = ()
    left_out: frozenset[Instruction] = frozenset()
    inputs: str = ""
    modules: str = ""
    untested: str = ""
    coupled: tuple[int, ...] = ()
    replayed: bool = False


class SyncPoint(Enum):
    """Point at which replicas wait for each other.

    At a ``REDUCTION`` an iteration can be measured without its wait, so that stragglers can be answered.
    """

    REDUCTION = "the gradient reduction"
    UNMARKED = "no instruction of their own"


class InstructionListener(Protocol):
    """Receiver of calls around instructions, on the training thread, through a guard.

    Within an iteration the n-th instruction that is announced is the n-th of the rank's order.
    """

    def iteration_begins(self, batch: Batch) -> bool:
        """A training iteration starts; the answer is whether its instructions are wanted."""

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """An instruction is about to be issued.

        ``load`` is how much a forward works on, where it is known here and no earlier. It is read off shapes
        and what lies on the host, never by a synchronisation.
        """

    def after(self, kind: Kind) -> None:
        """An instruction was issued."""

    def iteration_ends(self) -> None:
        """A training iteration was issued to its end."""

    def other_schedule_begins(self) -> None:
        """Something that does not train (an evaluation) starts."""

    def iteration_broke(self) -> None:
        """The host's own code raised inside an iteration; the exception passes unchanged."""

    def fail(self, error: Exception) -> bool:
        """Restore the clocks and leave, since this listener, one before it or a hook failed.

        Returns whether the user wants the error raised (``"on_error": "raise"``).
        """


class PassingListener:
    """A listener in front of another that passes every call on; subclasses change some of them."""

    def __init__(self, listener: InstructionListener) -> None:
        self._listener = listener

    def iteration_begins(self, batch: Batch) -> bool:
        return self._listener.iteration_begins(batch)

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self._listener.before(kind, load)

    def after(self, kind: Kind) -> None:
        self._listener.after(kind)

    def iteration_ends(self) -> None:
        self._listener.iteration_ends()

    def other_schedule_begins(self) -> None:
        self._listener.other_schedule_begins()

    def iteration_broke(self) -> None:
        self._listener.iteration_broke()

    def fail(self, error: Exception) -> bool:
        return self._listener.fail(error)


class WithoutInstructions(PassingListener):
    """A listener in front of the session's that keeps instructions from it; an emulation needs them."""

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Keep it."""

    def after(self, kind: Kind) -> None:
        """Keep it."""


class Adapter(Protocol):
    """A training engine of one framework, in this process.

    ``name`` is the framework's; ``sync_point`` where its replicas wait. All but `install` and `remove` only
    read.
    """

    @property
    def name(self) -> str: ...

    @property
    def sync_point(self) -> SyncPoint: ...

    @property
    def local_rank(self) -> int:
        """Return which of its node's ranks this is."""

    @property
    def device(self) -> torch.device: ...

    def place(self) -> Place:
        """State where this rank stands and what it runs in a batch as the one that began last.

        Raises:
            EngineError: a schedule, or a use of the framework, that cannot be served.
        """

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Join the orders of all pipeline ranks, as `place` gave them on every rank.

        Raises:
            ScheduleError: orders that cannot run to their end.
        """

    def traits(self) -> Mapping[str, str]:
        """Return the framework's part of the job's fingerprint, alike on all ranks."""

    def install(self, listener: InstructionListener) -> None:
        """Begin to call a listener."""

    def remove(self) -> None:
        """Leave no trace; safe to call twice, also from within an iteration."""

    @property
    def scalars_every(self) -> int | None:
        """Iterations between two writes of scalars; None where nobody looks."""

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Show scalars where the framework shows its own; what it raises ends the scalars alone."""
