"""Ask the user's function for the loads of an iteration before it begins; a job goes on without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from queue import Empty, SimpleQueue
from typing import cast

from perseus_ds.config.load import LoadFunction, load_function
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.schedule import Load

LIMIT_S = 0.1
"""How long training waits for the function in an iteration."""
_PATIENCE = 3
_MOST_LENGTHS = 100_000
"""Sequences of a microbatch: what lists more is taken to list without end."""


class UserLoads(PassingListener):
    """A listener in front of all others: batches have the loads that the user's function gives.

    The function runs in a thread of its own while training waits for it, ``LIMIT_S`` at most. A function is
    not asked again if it is slower a few times, raises, or returns what are no loads of these microbatches.
    One line gives the reason, and iterations are taken as if their loads were unknown.
    """

    def __init__(
        self,
        listener: InstructionListener,
        function: LoadFunction,
        *,
        log: EventLog,
        rank: int = 0,
    ) -> None:
        super().__init__(listener)
        self._whose = f" on rank {rank}" if rank else ""
        self._function: LoadFunction | None = function
        self._log = log
        self._iteration = 0
        self._requests: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, tuple[Load, ...] | BaseException]] = SimpleQueue()
        self._late = 0
        threading.Thread(target=self._answer, args=(function,), daemon=True, name="perseus loads").start()

    def iteration_begins(self, batch: Batch) -> bool:
        if self._function is not None:
            loads = self._loads(batch.microbatches)
            batch = replace(batch, loads=loads or batch.loads)
        self._iteration += 1
        return super().iteration_begins(batch)

    def close(self) -> None:
        self._function = None
        self._requests.put(None)

    def _loads(self, microbatches: int) -> tuple[Load, ...] | None:
        self._requests.put((self._iteration, microbatches))
        until = time.monotonic() + LIMIT_S
        about = -1
        while about < self._iteration:
            try:
                about, answer = self._answers.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                self._late += 1
                if self._late == _PATIENCE:
                    limit = f"{LIMIT_S:g} s {_PATIENCE} times"
                    self._go_without(f"took longer than {limit}")
                return None
        if isinstance(answer, BaseException):
            self._go_without(str(answer) if isinstance(answer, PerseusError) else f"raised {answer!r:.200}")
            return None
        return answer

    def _go_without(self, why: str) -> None:
        self.close()
        line = f"the function of set_load{self._whose} {why}, at iteration {self._iteration}"
        self._log.line_here(f"{line}: it is not asked again")

    def _answer(self, function: LoadFunction) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._answers.put((request[0], loads_of_answer(function(*request), request[1])))
            except BaseException as error:  # noqa: BLE001  # a user's function may raise anything, or exit
                self._answers.put((request[0], error))


def loads_of_answer(answer: object, microbatches: int) -> tuple[Load, ...]:
    """Read what a user's function returned.

    Raises:
        ConfigError: another number of loads, or one that is negative, missing or no number.
    """
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise ConfigError(f"returned {answer!r:.80}, not one load for each of {microbatches} microbatches")
    entries = list(islice(answer, microbatches + 1))
    if len(entries) != microbatches:
        several = f"{len(entries)} load{'s' * (len(entries) != 1)}"
        found = several if len(entries) < microbatches else f"more than {microbatches} loads"
        raise ConfigError(f"returned {found} for {microbatches} microbatches")
    return tuple(_load(place, entry) for place, entry in enumerate(entries))


def _load(place: int, entry: object) -> Load:
    if isinstance(entry, Load):
        return entry
    try:
        return Load.of_lengths(_lengths(entry))
    except ConfigError as error:
        reason = f"returned no load for microbatch {place}: {error.message}"
        raise ConfigError(reason, hint=error.hint) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"returned {entry!r:.80} for microbatch {place}", hint="expected tokens, or a list of lengths"
        ) from error


def _lengths(entry: object) -> list[float]:
    """Read tokens, or the lengths of several sequences; a tensor without dimensions is a number."""
    if not isinstance(entry, Iterable) or isinstance(entry, str | bytes) or getattr(entry, "ndim", 1) == 0:
        return [float(entry)]  # type: ignore[arg-type]  # what is no number raises
    lengths = [float(length) for length in islice(entry, _MOST_LENGTHS + 1)]
    if len(lengths) > _MOST_LENGTHS:
        raise ConfigError(f"more than {_MOST_LENGTHS} lengths")
    return lengths


def given_by_all(channel: ControlChannel, named: str | None, log: EventLog) -> LoadFunction | None:
    """Return this rank's function if all have one; else one line names a rank without. Collective.

    Raises:
        ConfigError: on all ranks alike, where ``named`` leads nowhere on one.
    """
    function, why = None, ""
    try:
        function = load_function(named)
    except ConfigError as error:
        why = str(error)
    everyone = cast("list[tuple[bool, str]]", channel.gather((function is not None, why)))
    for rank, (_, reason) in enumerate(everyone):
        if reason:
            raise ConfigError(f"rank {rank}: {reason}")
    having = [rank for rank, (has, _) in enumerate(everyone) if has]
    if 0 < len(having) < channel.size:
        missing = [rank for rank in range(channel.size) if rank not in set(having)]
        log.event(
            "loads_missing",
            f"set_load was called on {len(having)} of {channel.size} ranks, not on rank {missing[0]}: "
            "nobody's function is asked",
            ranks=missing[:100],
        )
        return None
    return function
