"""Ask the user's function for the loads of an iteration before it begins; a job goes on without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from queue import Empty, SimpleQueue

from perseus_ds.config.load_function import LoadFunction
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.schedule import Load

_PATIENCE = 3


class UserLoads(PassingListener):
    """A listener in front of all others: batches have the loads that the user's function gives.

    The function runs in a thread of its own while training waits for it, ``limit_s`` at most. A function is
    not asked again if it is slower a few times, raises, or returns what are no loads of these microbatches.
    One line gives the reason, and iterations are taken as if their loads were unknown.
    """

    def __init__(
        self, listener: InstructionListener, function: LoadFunction, *, limit_s: float, log: EventLog
    ) -> None:
        super().__init__(listener)
        self._function: LoadFunction | None = function
        self._limit_s = limit_s
        self._log = log
        self._iteration = 0
        self._asked: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, tuple[Load, ...] | Exception]] = SimpleQueue()
        self._late = 0
        threading.Thread(target=self._answer, args=(function,), daemon=True, name="perseus loads").start()

    def iteration_begins(self, batch: Batch) -> bool:
        """Add the loads of its microbatches to a batch."""
        if self._function is not None:
            loads = self._loads(batch.microbatches)
            batch = replace(batch, loads=loads or batch.loads)
        self._iteration += 1
        return super().iteration_begins(batch)

    def close(self) -> None:
        """Ask no more."""
        self._function = None
        self._asked.put(None)

    def _loads(self, microbatches: int) -> tuple[Load, ...] | None:
        self._asked.put((self._iteration, microbatches))
        until = time.monotonic() + self._limit_s
        about = -1
        while about < self._iteration:
            try:
                about, answer = self._answers.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                self._late += 1
                if self._late == _PATIENCE:
                    self._go_without(f"took longer than {self._limit_s:g} s {_PATIENCE} times")
                return None
        if isinstance(answer, Exception):
            said = answer.message if isinstance(answer, PerseusError) else f"raised {answer!r:.200}"
            self._go_without(said)
            return None
        return answer

    def _go_without(self, why: str) -> None:
        self.close()
        self._log.line_here(
            f"the function of set_load {why}, at iteration {self._iteration}: it is not asked again"
        )

    def _answer(self, function: LoadFunction) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                self._answers.put((asked[0], loads_of_answer(function(*asked), asked[1])))
            except Exception as error:  # noqa: BLE001  # a user's function may raise anything
                self._answers.put((asked[0], error))


def loads_of_answer(answer: object, microbatches: int) -> tuple[Load, ...]:
    """Read what a user's function returned.

    Raises:
        ConfigError: another number of loads, or one that is negative, missing or no number.
    """
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise ConfigError(f"returned {answer!r:.80}, not one load for each of {microbatches} microbatches")
    entries = list(answer)
    if len(entries) != microbatches:
        raise ConfigError(f"returned {len(entries)} loads for {microbatches} microbatches")
    return tuple(_load(place, entry) for place, entry in enumerate(entries))


def _load(place: int, entry: object) -> Load:
    if isinstance(entry, Load):
        return entry
    try:
        if isinstance(entry, Iterable) and not isinstance(entry, str | bytes):
            return Load.of_lengths([float(length) for length in entry])
        return Load.of_lengths([float(entry)])  # type: ignore[arg-type]  # what is no number raises
    except ConfigError as error:
        raise ConfigError(f"returned no load for microbatch {place}: {error.message}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"returned {entry!r:.80} for microbatch {place}: tokens or lengths") from error


def given_by_all(channel: ControlChannel, function: LoadFunction | None, log: EventLog) -> bool:
    """Whether every rank has a function, or none; else one line names a rank without. Collective."""
    having = [rank for rank, has in enumerate(channel.gather(function is not None)) if has]
    if 0 < len(having) < channel.size:
        missing = [rank for rank in range(channel.size) if rank not in set(having)]
        log.event(
            "loads_missing",
            f"set_load was called on {len(having)} of {channel.size} ranks, not on rank {missing[0]}: "
            "nobody's function is asked",
            ranks=missing[:100],
        )
        return False
    return True
