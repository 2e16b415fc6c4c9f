"""How much work a microbatch of some load is for a simulated GPU."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation.carried_time import Messages
from perseus_ds.runtime.emulation.routes import LOADS
from perseus_ds.schedule import Instruction, Kind, Load


class SharedLoads:
    """The first stage counts what every stage works on: later ones see no lengths, and their GPUs must."""

    def __init__(self, messages: Messages, *, first: int, others: Sequence[int], rank: int) -> None:
        self._messages = messages
        self._first = first
        self._others = others
        self._rank = rank
        self._open = 0
        self._counted: list[Load | None] = []

    def of(self, batch: Batch) -> tuple[Load, ...] | None:
        """Return a batch's loads as the first stage's rank knows them at its begin; None: it does not."""
        while len(self._counted) < self._open:  # forwards of the last batch that were taken for others
            self._exchange(None)
        known = self._known(batch)
        self._open = batch.microbatches if known is None else 0
        self._counted.clear()
        return known

    def of_forward(self, present: Instruction, load: Load | None) -> Load | None:
        """Return a forward's load as the first stage counted it, which it does no earlier than there.

        A later stage's forward waits for the first one's activation anyway.
        """
        if self._rank == self._first and present.stage == 0:
            if len(self._counted) < self._open:
                self._exchange(load)
            return load
        while self._rank != self._first and len(self._counted) <= min(present.microbatch, self._open - 1):
            self._exchange(None)
        known = self._counted[present.microbatch] if present.microbatch < len(self._counted) else None
        return known or load

    def _known(self, batch: Batch) -> tuple[Load, ...] | None:
        if self._rank == self._first:
            loads = batch.loads or (None,) * batch.microbatches
            for load in loads:
                self._send(load)
            return batch.loads
        found = [self._receive() for _ in range(batch.microbatches)]
        loads = tuple(load for load in found if load is not None)
        return loads if len(loads) == len(found) else None

    def _exchange(self, load: Load | None) -> None:
        """Send the next load, or receive it."""
        if self._rank == self._first:
            self._send(load)
            self._counted.append(load)
        else:
            self._counted.append(self._receive())

    def _send(self, load: Load | None) -> None:
        for rank in self._others:
            for number in (_UNKNOWN, _UNKNOWN) if load is None else (load.tokens, load.squares):
                self._messages.send(rank, LOADS, number)

    def _receive(self) -> Load | None:
        tokens, squares = (self._messages.receive(self._first, LOADS) for _ in range(2))
        return None if min(tokens, squares) < 0.0 else Load(tokens, squares)


class LoadShare:
    """The share of each microbatch's work in that of the mean one.

    With ``terms`` it is terms[0] + terms[1] t + terms[2] q, t and q the load's tokens and squares over those
    of ``mean``. Without, it is its tokens over those of the first microbatch that a stage saw. A load is what
    the first stage knows at the begin of a batch or counts at its forward (``shared``). Else it is the
    forward's own.
    """

    def __init__(
        self,
        terms: Sequence[float] | None = None,
        mean: Load | None = None,
        shared: SharedLoads | None = None,
    ) -> None:
        self._terms = terms
        self._mean = mean
        self._shared = shared
        self._batch: tuple[Load, ...] | None = None
        self._first_tokens: dict[int, float] = {}
        self._shares: dict[tuple[int, int], float] = {}

    def iteration_begins(self, batch: Batch) -> None:
        """Know the loads of a batch; alike on all ranks of a pipeline where they are shared."""
        self._shares.clear()
        self._batch = batch.loads if self._shared is None else self._shared.of(batch)

    def share(self, present: Instruction, load: Load | None) -> float:
        """Return the share of what an instruction works on, whose forward has ``load``."""
        place = present.stage, present.microbatch
        if self._batch is not None and present.microbatch < len(self._batch):
            load = self._batch[present.microbatch]
        elif self._shared is not None and present.kind is Kind.FORWARD:
            load = self._shared.of_forward(present, load)
        if load is not None:
            self._shares[place] = self._of(present.stage, load)
        return self._shares.get(place, 1.0)

    def _of(self, stage: int, load: Load) -> float:
        if self._terms is None or self._mean is None:
            first = self._first_tokens.setdefault(stage, load.tokens)
            return load.tokens / first if first and load.tokens else 1.0
        fixed, tokens, squares = self._terms
        q = load.squares / self._mean.squares if self._mean.squares else 0.0
        return max(_LEAST, fixed + tokens * load.tokens / self._mean.tokens + squares * q)


_UNKNOWN = -1.0
_LEAST = 1e-3
