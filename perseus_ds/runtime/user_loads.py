"""Ask the user's function for the loads of an iteration before it begins; a job goes on without it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.schedule import Load

LIMIT_S = 0.1
"""A call that takes longer is a slow one."""
_MOST_SLOW = 3
_MOST_LENGTHS = 100_000
"""Sequences of a microbatch: a list of more is taken to be endless."""


LoadFunction = Callable[[int, int], object]
"""(iteration, microbatches) -> one entry a microbatch: its tokens, or a list of its sequences' lengths."""
READ_AHEAD = "read_ahead"
_set_function: list[LoadFunction] = []


def set_function(function: LoadFunction | None) -> None:
    """Keep the user's function for the loads of coming iterations; None forgets it.

    Raises:
        ConfigError: it cannot be called.
    """
    if function is not None and not callable(function):
        raise ConfigError(f"set_load was given {function!r:.80}", hint="expected a function")
    _set_function[:] = [] if function is None else [function]


def load_function(named: str | None) -> LoadFunction | None:
    """Return the function that was set in code, else the one that ``straggler.loads`` names.

    Raises:
        ConfigError: there is no such function.
    """
    if _set_function or named in {None, READ_AHEAD}:
        return _set_function[0] if _set_function else None
    assert named is not None
    module, _, name = named.replace(":", ".").rpartition(".")
    hint = f'expected "module.function" or "{READ_AHEAD}"'
    try:
        found: object = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        why = f"{type(error).__name__}: {error!s:.200}"
        raise ConfigError(f"perseus.straggler.loads is {named!r:.200}: {why}", hint=hint) from error
    if not callable(found):
        raise ConfigError(f"perseus.straggler.loads is {named!r:.200}, which is not a function", hint=hint)
    return found


class UserLoads(PassingListener):
    """A listener in front of all others: batches have the loads that the user's function gives.

    The function runs on the training thread and is timed. It is not called again if it is slow a few times,
    raises, or returns no loads of these microbatches. One line gives the reason, and iterations go on as if
    their loads were unknown.
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
        self._iteration = self._slow = 0

    def iteration_begins(self, batch: Batch) -> bool:
        if self._function is not None:
            batch = replace(batch, loads=self._loads(self._function, batch.microbatches) or batch.loads)
        self._iteration += 1
        return self._listener.iteration_begins(batch)

    def close(self) -> None:
        self._function = None

    def _loads(self, function: LoadFunction, microbatches: int) -> tuple[Load, ...] | None:
        begun_s = time.monotonic()
        try:
            loads = loads_of_answer(function(self._iteration, microbatches), microbatches)
        except PerseusError as error:
            self._go_without(str(error))
            return None
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's function may raise anything
            self._go_without(f"raised {error!r:.200}")
            return None
        self._slow += time.monotonic() - begun_s > LIMIT_S
        if self._slow == _MOST_SLOW:
            self._go_without(f"took longer than {LIMIT_S:g} s {_MOST_SLOW} times")
        return loads

    def _go_without(self, why: str) -> None:
        self.close()
        line = f"the function of set_load{self._whose} {why}, at iteration {self._iteration}"
        self._log.line_here(f"{line}: it is not called again")


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
    has_one = channel.gather_results(lambda: load_function(named) is not None)
    missing = [rank for rank, has in enumerate(has_one) if not has]
    if 0 < len(missing) < channel.size:
        log.event(
            "loads_missing",
            f"set_load was called on {channel.size - len(missing)} of {channel.size} ranks, not on rank "
            f"{missing[0]}: nobody's function is asked",
            ranks=missing[:100],
        )
        return None
    return load_function(named)
