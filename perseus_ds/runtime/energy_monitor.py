"""Joules of one GPU: its energy counter, read by a process of its own and checked against its power.

`EnergyMonitor` measures windows of any program and needs no torch. A job uses `EnergyWatch`, the same reading
with clocks and temperatures beside it::

    GPU -> EnergySource (reader process) -> pipe -> EnergyWatch -> windows, accounts

A thread that reads 20 times per second would take the interpreter each time from the thread that trains. So
only simulated GPUs, which no other process can open, are read within this one.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fcntl import F_SETPIPE_SZ, fcntl
from functools import reduce
from multiprocessing.connection import Connection
from operator import itemgetter, or_
from queue import Empty, SimpleQueue
from statistics import fmean, median
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from perseus_ds.device.amd import AmdGpu
from perseus_ds.device.gpu import Achieved, Capabilities, DeviceRequest, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError, PerseusError, as_perseus_error
from perseus_ds.guard.claim import open_gpu
from perseus_ds.guard.spawn import own_environment
from perseus_ds.runtime.threads import HostThreads

if TYPE_CHECKING:
    from perseus_ds.profile import CounterTrace

T = TypeVar("T")

_CHECKED_S = 1.0
_LEAST, _MOST = 0.8, 1.25
_COMPARED_S = 15.0
_DIFFERS = 0.1
_AGREE = 3
_STILL, _STILL_READS, _STILL_S = "stands still", 50, 4.0
_MOST_W = 20e3
"""No GPU, and no module, takes as much: a counter that moves faster has jumped."""
_STEPS, _STEPS_WITHIN_S = 3, 60.0


_READS_PER_CLOCK_READ = 5


class GpuReading(NamedTuple):
    """A reading of a GPU, by the device's time.

    ``anew``: energy counts from another start than before. ``achieved`` and ``temperature_c`` are None where
    they were not read this time. A text is why the temperature cannot be read, now and later. ``reasons`` are
    the faults of the counter, ``useless`` is why no energy can be read at all.
    """

    at_s: float
    energy_j: float
    anew: bool
    achieved: Achieved | None = None
    temperature_c: float | str | None = None
    reasons: tuple[str, ...] = ()
    useless: str = ""


class EnergySource:
    """Reads joules: the counter's, or where that cannot be right the GPU's own power, integrated.

    On modules of CPU and GPU (GH200, GB200) the counter counts both. Instantaneous power is read beside it
    for a second at the start, and for as long as both differ up to three. A counter that differs by more than
    a quarter each time does not show this GPU's energy. One that agrees is compared for 15 s more: a
    difference of more than a tenth is reported, since nobody knows which of both is right.

    A counter that steps back or far ahead (a wrap, a driver loaded anew) begins anew: ``restarts`` counts
    that. One that steps again and again, or does not rise any more, is replaced by the power. A device that
    reports no power keeps its counter: ``useless`` states why nothing can be read from it.

    Units: joules, watts; a fraction for ``ratio``, counter over integrated power.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.integrates = False
        self.restarts = 0
        self.ratio: float | None = None
        self.useless = ""
        self.reasons: tuple[str, ...] = ()
        self._replaced = ""
        self._checking = True
        self._compares = False
        self._against = 0
        self._power: tuple[float, float] | None = None
        self._integrated_j = 0.0
        self._changed: tuple[float, float, float] | None = None
        self._counted_j: float | None = None
        self._read_s = 0.0
        self._rose: tuple[int, float] | None = None
        self._steps_s: deque[float] = deque(maxlen=_STEPS)
        self._polls = 0
        self._has_sensor = True

    def poll(self) -> GpuReading:
        """Read energy, and at every fifth call clock and temperature.

        Raises:
            DeviceError: energy or clock cannot be read.
        """
        restarts = self.restarts
        changed = not self.integrates and self._count()
        if self.integrates:
            at_s = self._integrate()
            energy_j = self._integrated_j
        else:
            if self._checking:
                self._check(self._read_s, changed=changed)
            at_s, energy_j = self._read_s, self._counted_j or 0.0
        self._polls += 1
        achieved: Achieved | None = None
        temperature_c: float | str | None = None
        if self._polls % _READS_PER_CLOCK_READ == 0:
            achieved = self._gpu.achieved()
            if self._has_sensor:  # one that fails, whatever its driver does, is not read again
                try:
                    temperature_c = self._gpu.temperature_c()
                except Exception as error:  # noqa: BLE001
                    temperature_c = f"it cannot be read: {as_perseus_error(error).message}"
                if temperature_c is None:
                    temperature_c = "this GPU shows none"
                self._has_sensor = not isinstance(temperature_c, str)
        anew = self.restarts > restarts
        return GpuReading(at_s, energy_j, anew, achieved, temperature_c, self.reasons, self.useless)

    def _count(self) -> bool:
        """Read the counter; return whether it has moved.

        One that does not rise any more is given up, and taken up again once it does.
        """
        before_j, counted_j, now_s = self._counted_j, self._gpu.energy_j(), self._gpu.now_s()
        if not math.isfinite(counted_j):
            counted_j = before_j or 0.0
        most_j = _MOST_W * max(now_s - self._read_s, _CHECKED_S)
        self._counted_j, self._read_s = counted_j, now_s
        if before_j is not None and not 0.0 <= counted_j - before_j <= most_j:
            self._steps_s.append(now_s)
            self._restart()
            if len(self._steps_s) == _STEPS and now_s - self._steps_s[0] <= _STEPS_WITHIN_S:
                self._give_up("steps back, or far ahead, again and again")
        if self._rose is None or (before_j is not None and counted_j > before_j):
            self._rose = 0, now_s
            if self.useless == _STILL:
                self.useless = ""
                self._explain()
        else:
            reads, since_s = self._rose
            self._rose = reads + 1, since_s
            if reads >= _STILL_READS and now_s - since_s >= _STILL_S and not self.useless:
                self._give_up(_STILL)
        return before_j is not None and counted_j != before_j

    def _explain(self) -> None:
        """State what is wrong with the counter, and why power is integrated instead where it is."""
        reasons = []
        if self.useless:
            reasons.append(
                f"the energy counter {self.useless}, and no power is shown: energy is not measured"
            )
        elif self.integrates:
            reasons.append(f"the energy counter {self._replaced}: the GPU's power is integrated instead")
        elif self._steps_s:
            reasons.append(
                "the energy counter stepped back, or far ahead: what was counted around that is left out"
            )
        differs = self.ratio is not None and abs(self.ratio - 1.0) > _DIFFERS
        if differs and not (self.integrates or self._compares):
            reasons.append(
                f"the energy counter counts {self.ratio:.2f} times what the GPU's power comes to: energies "
                "are as uncertain (perseus-ds doctor compares both)"
            )
        self.reasons = tuple(reasons)

    def _give_up(self, why: str) -> None:
        """Replace the counter by the power, where that can be read; else it is of no use."""
        if self._power_w():
            self._replace(why)
        else:
            self.useless = why
            self._explain()

    def _check(self, now_s: float, *, changed: bool) -> None:
        """Compare from change to change, so that no part of a period is counted on one side only."""
        self._integrate()
        if not (self._checking and changed):
            return
        here = now_s, self._integrated_j, self._counted_j or 0.0
        if self._changed is None:
            self._changed = here
        elif now_s - self._changed[0] >= (_COMPARED_S if self._compares else _CHECKED_S):
            spent_j = self._integrated_j - self._changed[1]
            ratio = (here[2] - self._changed[2]) / spent_j if spent_j > 0 else 1.0
            self._judge(ratio)
            self._changed = here

    def _judge(self, ratio: float) -> None:
        if self._compares or _LEAST <= ratio <= _MOST:
            self.ratio, self._checking = ratio, not self._compares
            self._compares = self._checking
            self._explain()
            return
        self._against += 1
        if self._against == _AGREE:
            self.ratio = ratio
            self._replace(f"counts {ratio:.2g} times what this GPU takes (a module's counter, with its CPU?)")

    def _replace(self, why: str) -> None:
        self._checking, self.integrates, self._replaced = False, True, why
        self._power = None
        self._restart()

    def _restart(self) -> None:
        self.restarts += 1
        self._changed = None
        self._explain()

    def _power_w(self) -> float | None:
        """Read the power of this instant; None where it cannot be read and only checks the counter."""
        try:
            return self._gpu.power_w()
        except Exception:
            if self.integrates:
                raise
            return None

    def _integrate(self) -> float:
        """Add the mean of this reading and the last, for the time between."""
        power_w, now_s = self._power_w(), self._gpu.now_s()
        if power_w is None:
            self._checking = False
            return now_s
        if self._power is not None:
            before_s, before_w = self._power
            self._integrated_j += 0.5 * (power_w + before_w) * (now_s - before_s)
        self._power = now_s, power_w
        return now_s


KEPT = 100_000
"""Rows that are kept at most, if nobody calls `EnergyWatch.forget`."""
_LEAST_C, _MOST_C = 1.0, 125.0
_MOST_STEP_C = 30.0
"""Between two readings, a quarter of a second apart: a chip follows its power in seconds."""


def between(rows: Iterable[tuple[float, T]], start_s: float, end_s: float) -> list[tuple[float, T]]:
    """Return the rows of a period, oldest first; a copy, since a thread adds others."""
    kept = list(rows)
    first = bisect_left(kept, start_s, key=itemgetter(0))
    return kept[first : bisect_right(kept, end_s, lo=first, key=itemgetter(0))]


class Temperatures:
    """Keeps a sensor's readings until one cannot be right; ``reason`` states why there are none from then on.

    A sensor is never worth an error: measuring goes on without it.
    """

    def __init__(self) -> None:
        self.readings: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self.reason = ""

    def note(self, at_s: float, read_c: float | str) -> None:
        """Add a reading, or the reason for its absence."""
        if self.reason:
            return
        last_c = self.readings[-1][1] if self.readings else None
        if isinstance(read_c, str):
            self.reason = read_c
        elif not _LEAST_C <= read_c <= _MOST_C:
            self.reason = f"its sensor reads {read_c:g} degrees C"
        elif last_c is not None and abs(read_c - last_c) > _MOST_STEP_C:
            self.reason = f"its sensor jumped from {last_c:g} to {read_c:g} degrees C"
        else:
            self.readings.append((at_s, read_c))
            return
        self.readings.clear()

    def mean_c(self, start_s: float, end_s: float) -> float | None:
        """Return the mean of a period; None where nothing was read in it."""
        read = between(self.readings, start_s, end_s)
        return fmean(map(itemgetter(1), read)) if read else None


_PIPE_BYTES = 1 << 20  # as much as Linux lets any user have: readings of ten minutes
_MOST_TAKEN = 500  # readings at a time: they cost the training thread some 10 us each
_PATIENCE_S = 2.0  # for a reading under way: a driver may block for minutes
_KILLED_S = 0.2
_MOST_WAITING = 12_000  # readings behind a full pipe: ten minutes more, then the oldest of them are dropped

_NOT_FOR_US = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Launchers and schedulers send these to all of a job. What they mean is the trainer's to decide."""

Message = tuple[Any, ...] | PerseusError | str
"""A reading as a plain tuple, which is read faster; the error of a reading; or why none could be made."""


class ReadingProcess:
    """Reads a GPU every so many seconds; `take` returns the readings since the last time, and never waits.

    It ends with its trainer, however that ends. Readings that are not taken wait in a pipe, then in the
    process: the first ten minutes and the last ten. ``error`` is of the reading that failed, after which
    there are no others. ``ended`` is why the process ended without one; empty while it runs.
    """

    def __init__(self, backend: str, uuid: str, every_s: float) -> None:
        """Start it; its first reading comes after about a fifth of a second.

        Raises:
            OSError: no process can be started.
        """
        ours, theirs = os.pipe()
        with contextlib.suppress(OSError):
            fcntl(theirs, F_SETPIPE_SZ, _PIPE_BYTES)
        words = [backend, uuid, str(every_s), str(theirs), str(os.getpid())]
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this Python, our own module
                [sys.executable, "-P", "-m", __name__, *words],
                pass_fds=(theirs,),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=own_environment(),
                start_new_session=True,
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        assert self._process.stdin is not None
        self._pace = self._process.stdin
        self._pipe = Connection(ours, writable=False)
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self.error: PerseusError | None = None
        self.ended = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_every(self, every_s: float) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended, or was closed by another thread
            os.write(self._pace.fileno(), f"{every_s}\n".encode())

    def take(self) -> list[GpuReading]:
        """Return the readings since the last time, oldest first.

        Cost: a poll where nothing has come. What has come is whole: the kernel writes so few bytes at once.
        """
        readings: list[GpuReading] = []
        while not self.ended and len(readings) < _MOST_TAKEN and self._poll.poll(0):
            try:
                message: Message = self._pipe.recv()
            except EOFError:
                code = self._process.poll()
                message = "it closed its end" if code is None else f"exit code {code}"
            if isinstance(message, tuple):
                readings.append(GpuReading(*message))
            elif isinstance(message, PerseusError):
                self.error = self.error or message
            else:
                self.ended = message
        return readings

    def close(self) -> None:
        """End it; one that a driver holds up is killed, and left behind if that does not end it either."""
        self._pace.close()
        self._pipe.close()
        try:
            self._process.wait(0.0 if self.ended else _PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILLED_S)


def main(backend: str, uuid: str, every_s: float, fileno: int, parent: int) -> None:
    """Read until the trainer closes our input or is gone: its own workers may keep that input open."""
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    messages: SimpleQueue[Message | None] = SimpleQueue()
    sender = threading.Thread(target=_send, args=(Connection(fileno, readable=False), messages), daemon=True)
    sender.start()
    try:
        with open_gpu(backend, uuid) as gpu:
            source, pace_s, anew = EnergySource(gpu), every_s, False
            while (pace_s := _wait(pace_s)) and os.getppid() == parent:
                try:
                    reading = source.poll()
                    if messages.qsize() >= _MOST_WAITING:
                        dropped = messages.get()
                        anew |= isinstance(dropped, tuple) and dropped[2]
                        reading, anew = reading._replace(anew=reading.anew or anew), False
                    messages.put(tuple(reading))
                except Exception as error:  # noqa: BLE001  # the first ends the readings, wherever they are made
                    messages.put(as_perseus_error(error))
                    break
    except PerseusError as error:
        messages.put(str(error))
    messages.put(None)
    sender.join(_PATIENCE_S)


def _wait(pace_s: float) -> float:
    """Wait until the next reading is due; return the pace from then on, or 0 at the input's end."""
    if not select.select([sys.stdin], [], [], pace_s)[0]:
        return pace_s
    words = os.read(sys.stdin.fileno(), 4096).split()
    return float(words[-1]) if words else 0.0


def _send(pipe: Connection, messages: SimpleQueue[Message | None]) -> None:
    """Send all messages; a full pipe holds up nothing but this thread."""
    with contextlib.suppress(OSError):  # the trainer is gone
        while (message := messages.get()) is not None:
            pipe.send(message)


_READS_PER_PERIOD = 2
_AWAY = 10.0  # periods
_LEAST_S = 0.02  # between two readings: some counters move every millisecond
_LEAST_COUNTED = 100
_ABOUT = 0.05
_MORE_OFTEN = 0.8
_MOST_STARTS = 4

Poll = Callable[[], None]
"""Read the device once."""

Repeat = Callable[[float, Poll], Poll]
"""Poll again and again, every so many seconds of the device's time; returns a function that ends it."""


class EnergyWatch:
    """Reads the counter about twice per period, keeps its changes, and answers from them.

    A change is dated half-way between the reading that shows it and the one before.

    A GPU is read by a process of its own (`ReadingProcess`), which is started again if it ends. `catch_up`
    takes in its readings; questions about a period do that first. A simulated GPU exists in this process
    alone. There ``repeat`` polls, by default from a thread. A device without a counter (``period_s`` is None)
    is not read. The first ``error`` ends the readings and is kept for the training thread. ``taken_j`` is the
    energy that the counter has shown since the start, ``troubles`` are the warnings that were given.
    """

    def __init__(
        self,
        gpu: Gpu,
        able: Capabilities | None = None,
        *,
        repeat: Repeat | None = None,
        threads: HostThreads | None = None,
    ) -> None:
        self._gpu = gpu
        self.period_s = _bounded_s(able or gpu.capabilities())
        self._source = EnergySource(gpu)
        self._threads = threads or HostThreads()
        self._changes: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._taken: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._clocks: deque[tuple[float, Achieved]] = deque(maxlen=KEPT)
        self.temperatures = Temperatures()
        self._repeat = repeat
        self._end: Poll | None = None
        self._process: ReadingProcess | None = None
        self._catching_up = threading.Lock()
        self._last: GpuReading | None = None
        self._starts = 0
        self._begins_anew = False
        self.taken_j = 0.0
        self.troubles: list[str] = []
        self._restarts: list[str] = []
        self._first_change_s = self._last_change_s = 0.0
        self._counted = 0
        self.error: PerseusError | None = None

    @property
    def seen_period_s(self) -> float | None:
        """The mean period of all changes, where that is about the declared one."""
        if self.period_s is None or self._counted < _LEAST_COUNTED:
            return self.period_s
        mean_s = (self._last_change_s - self._first_change_s) / (self._counted - 1)
        return mean_s if abs(mean_s / self.period_s - 1.0) < _ABOUT else self.period_s

    def start(self) -> None:
        """Begin to read."""
        if self.period_s is None:
            return
        opened = self._gpu.opened_elsewhere() if self._repeat is None else None
        if opened is None:
            self._end = (self._repeat or self._repeat_in_a_thread)(self._pace_s, self.look)
        else:
            self._start_process(*opened)

    @property
    def _pace_s(self) -> float:
        return (self.period_s or 0.0) / _READS_PER_PERIOD

    def _start_process(self, backend: str, uuid: str) -> None:
        self._starts += 1
        try:
            self._process = ReadingProcess(backend, uuid, self._pace_s)
        except OSError as error:
            self._process, self.error = None, DeviceUnavailableError(f"no process reads its energy: {error}")

    def reckon(self, able: Capabilities) -> None:
        """Read more often, where the counter turned out to move more often than was declared."""
        period_s = _bounded_s(able)
        if period_s is None or period_s >= _MORE_OFTEN * (self.period_s or 0.0):
            return
        if self._process is not None:
            self.period_s = period_s
            self._process.read_every(self._pace_s)
        elif self._end is not None:
            self.close()
            self.period_s = period_s
            self.start()

    @property
    def useless(self) -> str:
        """Reason why no energy can be measured, now and later; empty where it can."""
        if self.period_s is None:
            return "its GPU has no energy counter"
        useless = self._last.useless if self._last else ""
        return f"its energy counter {useless}" if useless else ""

    def trouble(self) -> str:
        """Return the next warning about the counter, each once; empty where there is no new one."""
        for reason in (*self._restarts, *(self._last.reasons if self._last else ())):
            if reason not in self.troubles:
                self.troubles.append(reason)
                return reason
        return ""

    def close(self) -> None:
        """End the readings; one that the driver holds up is left behind."""
        with self._catching_up:
            process, self._process = self._process, None
        if process is not None:
            process.close()
        if self._end is not None:
            self._end()
            self._end = None

    def look(self) -> None:
        """Read once, from here."""
        if self.error is not None:
            return
        try:
            self._add(self._source.poll())
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which reports it
            self.error = as_perseus_error(error)

    def catch_up(self) -> None:
        """Add the process's readings; from any thread, one at a time."""
        if self._process is None or not self._catching_up.acquire(blocking=False):
            return
        try:
            process = self._process
            if process is not None:  # else another thread has closed it
                for reading in process.take():
                    self._add(reading)
                self.error = self.error or process.error
                if process.ended and self.error is None:
                    self._start_another(process)
        finally:
            self._catching_up.release()

    def _start_another(self, ended: ReadingProcess) -> None:
        ended.close()
        opened = self._gpu.opened_elsewhere()
        if opened is None or self._starts >= _MOST_STARTS:
            self._process = None
            self.error = DeviceUnavailableError(f"the process that reads its energy ended: {ended.ended}")
            return
        self._restarts.append(f"the process that reads its energy ended ({ended.ended}): another was started")
        self._begins_anew = True
        self._start_process(*opened)

    def _add(self, reading: GpuReading) -> None:
        last = self._last
        if self._begins_anew:  # another process may have begun to integrate power, or have ceased to
            reading, self._begins_anew = reading._replace(anew=True), False
        if last is not None and not reading.anew:
            self.taken_j += max(0.0, reading.energy_j - last.energy_j)
        held_up = last is not None and reading.at_s - last.at_s > _AWAY * (self.period_s or 0.0)
        if reading.anew or held_up:  # by the driver or the host, for so long that the change has no date
            self._changes.clear()
        elif last is not None and reading.energy_j != last.energy_j:
            self._last_change_s = (last.at_s + reading.at_s) / 2
            if not self._counted:
                self._first_change_s = self._last_change_s
            self._counted += 1
            self._changes.append((self._last_change_s, reading.energy_j))
            self._taken.append((self._last_change_s, self.taken_j))
        self._last = reading
        if reading.achieved is not None:
            self._clocks.append((reading.at_s, reading.achieved))
        if reading.temperature_c is not None:
            self.temperatures.note(reading.at_s, reading.temperature_c)

    def trace(self, since_s: float) -> CounterTrace:
        """Return all changes since a moment, with the last one before it."""
        from perseus_ds.profile import CounterTrace  # noqa: PLC0415  # the reader process never needs it

        self.catch_up()
        changes = list(self._changes)
        kept = changes[max(0, bisect_right(changes, since_s, key=itemgetter(0)) - 1) :]
        return CounterTrace(list(map(itemgetter(0), kept)), list(map(itemgetter(1), kept)))

    def taken_at(self, at_s: float) -> tuple[float, float] | None:
        """Return the energy (J) taken from the start to a moment; None before the counter has passed it.

        Returns: beside it, how far apart (s) the two changes are between which it was interpolated.
        """
        taken = list(self._taken)
        after = max(1, bisect_left(taken, at_s, key=itemgetter(0)))
        if after >= len(taken):
            return None
        (from_s, from_j), (to_s, to_j) = taken[after - 1 : after + 1]
        apart_s = to_s - from_s
        return from_j + (to_j - from_j) * (at_s - from_s) / apart_s, apart_s

    def clock_between(self, start_s: float, end_s: float) -> tuple[int | None, int]:
        """Return the median clock of a period, in MHz, and all event reasons read in it."""
        read = [achieved for _, achieved in self.looks_between(start_s, end_s)]
        if not read:
            return None, 0
        reasons = reduce(or_, (achieved.event_reasons for achieved in read))
        return int(median(achieved.clock_mhz for achieved in read)), int(reasons)

    @property
    def latest_look_s(self) -> float:
        """Moment of the last reading, by the device's time."""
        return self._last.at_s if self._last else -math.inf

    @property
    def latest_clock_mhz(self) -> int | None:
        return self._clocks[-1][1].clock_mhz if self._clocks else None

    def looks_between(self, start_s: float, end_s: float) -> list[tuple[float, Achieved]]:
        self.catch_up()
        return between(self._clocks, start_s, end_s)

    def forget(self, before_s: float) -> None:
        """Drop all changes before a moment but the last one."""
        for rows in (self._changes, self._taken):
            while len(rows) > 1 and rows[1][0] <= before_s:
                rows.popleft()
        for looks in (self._clocks, self.temperatures.readings):
            while looks and looks[0][0] < before_s:
                looks.popleft()

    def _repeat_in_a_thread(self, every_s: float, poll: Poll) -> Poll:
        """Poll from a thread, by the host's clock, until an error ends it."""
        stop = self._threads.queue(str)
        pause_s = self._gpu.wall_s(every_s)

        def run() -> None:
            while self.error is None:
                try:
                    stop.get(timeout=pause_s)
                except Empty:
                    poll()
                else:
                    return

        thread = self._threads.start(run, name="perseus-energy")

        def end() -> None:
            stop.put("end")
            thread.join(_PATIENCE_S)

        return end


def _bounded_s(able: Capabilities) -> float | None:
    """Return the counter's period, where there is one, but no shorter than it is worth to be read."""
    period_s = able.counter_period_s
    return None if period_s is None else max(period_s, _READS_PER_PERIOD * _LEAST_S)


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """Energy of one window: ``energy_j`` with its standard error ``energy_se_j``, over ``time_s`` seconds.

    The error is that of the two ends: a counter that moves every 0.1 s does not say when within that time
    the energy was taken. Errors of the counter itself are not in it (`EnergyMonitor.warnings`).
    """

    time_s: float
    energy_j: float
    energy_se_j: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s if self.time_s else 0.0


_POLL_S = 0.005
_MOST_WAIT_S = 30.0


class EnergyMonitor:
    """Measure the energy of one GPU, in any program, with torch or without.

    Example::

        with perseus_ds.EnergyMonitor(gpu=0) as monitor:
            monitor.begin_window("epoch")
            train_one_epoch()
            torch.cuda.synchronize()  # the GPU may be behind the program
            used = monitor.end_window("epoch")
        print(f"{used.energy_j:.0f} J (standard error {used.energy_se_j:.1f} J) in {used.time_s:.1f} s")

    Windows have names and may overlap. Beginning one takes microseconds. Ending one waits until the counter
    has passed the end, about 0.1 s: begin and end windows around many iterations, not in each.
    """

    def __init__(self, gpu: int | str | Gpu = 0) -> None:
        """Begin to read; returns when the counter has moved.

        Args:
            gpu: index in the order of ``nvidia-smi`` (``CUDA_VISIBLE_DEVICES`` has no part in it), UUID, or
                an opened device, which is left open.

        Raises:
            DeviceError: no such GPU, or its energy cannot be read.
        """
        self._opened = None if isinstance(gpu, Gpu) else _open_gpu(gpu)
        self._gpu: Gpu = gpu if isinstance(gpu, Gpu) else self._opened  # type: ignore[assignment]
        self._watch = EnergyWatch(self._gpu)
        self._begins: dict[str, tuple[float, tuple[float, float] | None]] = {}
        try:
            self._watch.start()
            begun_s = self._gpu.now_s()
            while self._watch.taken_at(begun_s) is None:
                self._wait(begun_s)
        except BaseException:
            self.close()
            raise

    def begin_window(self, name: str) -> None:
        """Begin a window now.

        Raises:
            ValueError: one of that name is open.
        """
        if name in self._begins:
            raise ValueError(f"the window {name!r} is open already")
        begun_s = self._gpu.now_s()
        while self._watch.latest_look_s < begun_s - _AWAY * (self._watch.period_s or 0.0):
            self._wait(begun_s)  # catch up with readings since the last window
        self._begins[name] = self._gpu.now_s(), None

    def end_window(self, name: str) -> EnergyUse:
        """End a window now, and return its energy once the counter has passed its end.

        Raises:
            ValueError: none of that name is open.
            DeviceError: its energy could not be read.
        """
        end_s = self._gpu.now_s()
        if name not in self._begins:
            raise ValueError(f"no window {name!r} is open")
        while (end := self._watch.taken_at(end_s)) is None:
            self._wait(end_s)
        begin_s, begin = self._begins.pop(name)
        begin = begin or self._watch.taken_at(begin_s) or end
        self._watch.forget(
            min((at_s for at_s, settled in self._begins.values() if not settled), default=end_s)
        )
        time_s, energy_j = end_s - begin_s, end[0] - begin[0]
        power_w = energy_j / time_s if time_s else 0.0
        return EnergyUse(time_s, energy_j, power_w * math.hypot(begin[1], end[1]) / math.sqrt(12.0))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Known faults of the counter, as lines."""
        self._watch.catch_up()
        while self._watch.trouble():
            pass
        return tuple(self._watch.troubles)

    def close(self) -> None:
        """End the reading; safe to call twice."""
        self._watch.close()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, since_s: float) -> None:
        """Catch up, and settle the begins of open windows: they may last for days."""
        seen = self._watch.latest_look_s
        self._watch.catch_up()
        if self._watch.error is not None:
            raise self._watch.error
        if self._watch.useless:
            raise DeviceUnavailableError(f"{self._gpu.identify().name}: {self._watch.useless}")
        for name, (at_s, settled) in self._begins.items():
            if not settled:
                self._begins[name] = at_s, self._watch.taken_at(at_s)
        if self._watch.latest_look_s == seen:
            if self._gpu.now_s() > since_s + _MOST_WAIT_S:
                raise DeviceUnavailableError("the energy counter does not move")
            time.sleep(_POLL_S)


def _open_gpu(gpu: int | str) -> Gpu:
    """Open a GPU to read it, through the first vendor's library that knows it."""
    request = DeviceRequest(
        local_rank=gpu if isinstance(gpu, int) else 0, uuid=gpu if isinstance(gpu, str) else None, lock=False
    )
    reasons = []
    for kind in (NvmlGpu, AmdGpu):
        try:
            return kind(request)
        except DeviceError as error:
            reasons.append(error.message)
    raise DeviceUnavailableError(f"GPU {gpu} cannot be read: {'; '.join(reasons)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
