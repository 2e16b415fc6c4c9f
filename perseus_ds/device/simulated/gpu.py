"""A GPU in software behind the `Gpu` interface: a physical device whose truth is known, not a mock."""

from __future__ import annotations

import hashlib
import heapq
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from weakref import WeakSet

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, Gpu, Identity
from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.models import GpuModel, model_named
from perseus_ds.device.simulated.physics import BLOCKED, AnyWork, KernelSequence, pieces
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceUnsupportedError, ValueRefusedError

# The energy counter of a simulated GPU: late, coarse, sampled and noisy, as real ones are.

_PER_J = 1000  # the counter counts millijoules


class EnergyCounter:
    """Watches the true energy for ``window_s`` of every ``period_s`` and extrapolates at each tick."""

    def __init__(
        self, *, period_s: float, window_s: float, noise: float, start_s: float, random: Random
    ) -> None:
        self._period_s, self._window_s, self._noise, self._random = period_s, window_s, noise, random
        self._phase_s = start_s + random.random() * period_s
        self._ticks = 0
        self._opened_j: float | None = None
        self._value_j = 0.0
        self.next_mark_s = self._phase_s

    def observe(self, energy_j: float) -> None:
        """Open a window at `next_mark_s`, or close one and tick, with the true energy so far."""
        if self._opened_j is None:
            self._open(energy_j)
            return
        factor = max(0.0, 1.0 + self._random.gauss(0.0, self._noise))
        self._value_j += (energy_j - self._opened_j) * factor * self._period_s / self._window_s
        self._ticks += 1
        self._opened_j = None
        self.next_mark_s = self._phase_s + self._ticks * self._period_s
        if self._window_s >= self._period_s:
            self._open(energy_j)

    @property
    def reading_j(self) -> float:
        return math.floor(self._value_j * _PER_J) / _PER_J

    def _open(self, energy_j: float) -> None:
        self._opened_j = energy_j
        self.next_mark_s = self._phase_s + self._ticks * self._period_s + self._window_s


# The state of a simulated GPU through time: clock, work, heat and energy, piece by piece.


@dataclass(slots=True)
class Task:
    """An instruction on the GPU; it ends when its work is done *and* its host handler has returned.

    ``work`` is what runs now, ``remaining_s`` what is left of it at the maximum clock, ``rest`` what follows.
    """

    work: AnyWork
    remaining_s: float
    rest: deque[tuple[AnyWork, float]]
    started_s: float
    started_j: float
    released: bool = False
    finished_s: float | None = None
    ended_s: float | None = None
    energy_j: float = 0.0


class Timeline:
    """Moves forward only. Between two marks nothing changes, so every piece has a closed form.

    Power and speed are worked out when clock, limit or task change, not at every mark.
    """

    def __init__(self, model: GpuModel, counter: EnergyCounter, *, start_s: float) -> None:
        self.model = model
        self.time_s = start_s
        self.energy_j = 0.0
        self.busy_s = 0.0
        self.temperature_c = model.reference_c
        self.requested_mhz = model.max_clock_mhz
        self.memory_mhz = model.memory_clocks_mhz[0]
        self.task: Task | None = None
        self._counter = counter
        self._pending: deque[tuple[float, int | None, int | None]] = deque()
        self.limit(model.max_clock_mhz, model.power_cap_w)

    def advance(self, to_s: float) -> None:
        """Let time pass up to ``to_s``; cost: O(marks between), about two per counter period."""
        while self.time_s < to_s:
            mark_s = self._counter.next_mark_s
            if self._pending:
                mark_s = min(mark_s, self._pending[0][0])
            if self.task is not None and self.task.finished_s is None:
                mark_s = min(mark_s, self.time_s + self.task.remaining_s / self._rate_now)
            mark_s = max(mark_s, self.time_s)
            self._pass(min(mark_s, to_s))
            if mark_s <= to_s:
                self._act(mark_s)

    def switch(self, clock_mhz: int | None, at_s: float, *, memory_mhz: int | None = None) -> None:
        """Have clocks come into force at a later time; switches come in ascending time."""
        self._pending.append((at_s, clock_mhz, memory_mhz))

    def limit(self, limit_mhz: int, power_cap_w: float) -> None:
        """From now on hold clock and power at or below limits."""
        self.limit_mhz, self._power_cap_w = limit_mhz, power_cap_w
        self._refresh()

    def begin(self, work: AnyWork | KernelSequence) -> Task:
        assert self.task is None, "a GPU runs one instruction at a time"
        rest = deque(pieces(work))
        self.task = Task(*rest.popleft(), rest, self.time_s, self.energy_j)
        self._refresh()
        return self.task

    def release(self, task: Task) -> None:
        """Report that the host's part is over: from now on the task ends with its work."""
        task.released = True
        if task.finished_s is not None:
            self._end(task)

    def abandon(self, task: Task) -> None:
        if task.ended_s is None:
            task.finished_s = self.time_s
            self._end(task)

    def finish_s(self) -> float:
        """Foretell when the current work is done, at the clocks that are known to come."""
        assert self.task is not None
        at_s, clock_mhz, memory_mhz = self.time_s, self.requested_mhz, self.memory_mhz
        changes = deque(self._pending)
        for work, left_s in ((self.task.work, self.task.remaining_s), *self.task.rest):
            remaining_s = left_s
            rate = self._rate(clock_mhz, memory_mhz, work)
            while changes and (changes[0][0] - at_s) * rate < remaining_s:
                change_s, next_mhz, next_memory_mhz = changes.popleft()
                remaining_s -= max(0.0, change_s - at_s) * rate
                at_s = max(at_s, change_s)
                clock_mhz, memory_mhz = next_mhz or clock_mhz, next_memory_mhz or memory_mhz
                rate = self._rate(clock_mhz, memory_mhz, work)
            at_s += remaining_s / rate
        return at_s

    def held_mhz(self) -> float:
        """The core clock that is really held, under the cap and any limit, for what runs now."""
        return self._held_mhz(self.requested_mhz, self.memory_mhz, self._work)

    def power_w(self) -> float:
        return self._base_w + self.model.leakage_w_per_k * (self.temperature_c - self.model.reference_c)

    @property
    def _work(self) -> AnyWork:
        return BLOCKED if self.task is None else self.task.work

    def _refresh(self) -> None:
        held_mhz = self.held_mhz()
        self._base_w = physics.power_w(self.model, held_mhz, self.memory_mhz, self._work)
        self._rate_now = physics.rate(self.model, held_mhz, self.memory_mhz, self._work)

    def _held_mhz(self, clock_mhz: int, memory_mhz: int, work: AnyWork) -> float:
        asked_mhz = min(clock_mhz, self.limit_mhz)
        return physics.held_mhz(self.model, asked_mhz, memory_mhz, work, self._power_cap_w)

    def _rate(self, clock_mhz: int, memory_mhz: int, work: AnyWork) -> float:
        held_mhz = self._held_mhz(clock_mhz, memory_mhz, work)
        return physics.rate(self.model, held_mhz, memory_mhz, work)

    def _pass(self, to_s: float) -> None:
        elapsed_s = to_s - self.time_s
        spent_j, self.temperature_c = physics.drift(self.model, self._base_w, self.temperature_c, elapsed_s)
        self.energy_j += spent_j
        if self.task is not None:
            self.busy_s += elapsed_s
            if self.task.finished_s is None:
                self.task.remaining_s -= elapsed_s * self._rate_now
        self.time_s = to_s

    def _act(self, mark_s: float) -> None:
        while self._pending and self._pending[0][0] <= mark_s:
            _, clock_mhz, memory_mhz = self._pending.popleft()
            self.requested_mhz = clock_mhz or self.requested_mhz
            self.memory_mhz = memory_mhz or self.memory_mhz
            self._refresh()
        if self._counter.next_mark_s <= mark_s:
            self._counter.observe(self.energy_j)
        task = self.task
        # done: what is left is below the resolution of the time base, never a fixed constant
        now_s, is_running = self.time_s, task is not None and task.finished_s is None
        if task and is_running and now_s + task.remaining_s <= math.nextafter(now_s, math.inf):
            if task.rest:
                task.work, task.remaining_s = task.rest.popleft()
                self._refresh()
                return
            task.finished_s = mark_s
            if task.released:
                self._end(task)

    def _end(self, task: Task) -> None:
        task.ended_s = self.time_s
        task.energy_j = self.energy_j - task.started_j
        self.task = None
        self._refresh()


# What really happened on a simulated GPU: for tests and oracles, never for measuring code.

_KEPT_TASKS = 4096


@dataclass(frozen=True, slots=True)
class TruthNow:
    """The true state at one moment."""

    time_s: float
    energy_j: float
    busy_s: float
    power_w: float
    clock_mhz: float
    temperature_c: float
    memory_mhz: int


@dataclass(slots=True)
class Truth:
    """Everything that happened: the last tasks, and how often the host was slower than the GPU.

    ``locks`` counts the clocks that were asked for since the first task.
    """

    tasks: deque[Task] = field(default_factory=lambda: deque(maxlen=_KEPT_TASKS))
    count: int = 0
    locks: int = 0
    overruns: int = 0

    @property
    def overrun_share(self) -> float:
        """The share of tasks in which the host was slower than the GPU; 0 in virtual time."""
        return self.overruns / max(self.count, 1)

    def record(self, task: Task) -> None:
        self.tasks.append(task)
        self.count += 1
        assert task.ended_s is not None
        assert task.finished_s is not None
        self.overruns += task.ended_s > task.finished_s


# Where a simulated GPU's time comes from: a clock of its own, or the host's, scaled.

_WAKE_S = 120e-6  # a sleeper wakes about 90 us late on a busy two-core machine: the rest is spun

Act = Callable[[], None]


class ScaledTime:
    """The host's monotonic clock over ``time_scale``: the same device time in every process of a node."""

    def __init__(self, time_scale: float) -> None:
        self._time_scale = time_scale

    def now_s(self) -> float:
        return time.monotonic() / self._time_scale

    def wall_s(self, device_s: float) -> float:
        return device_s * self._time_scale

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Sleep to just before the end; the last moments are returned at once, for the caller to spin.

        Waiting holds ``condition``'s lock and wakes on its notify.
        """
        host_s = for_s * self._time_scale - _WAKE_S
        if host_s > 0:
            condition.wait(host_s)

    def sleep(self, for_s: float) -> None:
        time.sleep(self.wall_s(for_s))


class VirtualTime:
    """Time that passes only when its one owner waits or lets it pass: the host's pace has no part.

    What is to happen at a moment happens at that moment, on the thread that lets time pass. ``left_at`` is
    for the owner: since when, by the host's clock, it has let no time pass.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self.left_at: float | None = None
        self._due: list[tuple[float, int, Act]] = []
        self._numbers = count()

    def now_s(self) -> float:
        return self._now_s

    def wall_s(self, device_s: float) -> float:
        return device_s

    def pass_s(self, elapsed_s: float) -> None:
        self.pass_to(self._now_s + elapsed_s)

    def pass_to(self, moment_s: float) -> None:
        """Let time pass up to a moment, with all that is due meanwhile; one that is over changes nothing."""
        while self._due and self._due[0][0] <= moment_s:
            due_s, _, act = heapq.heappop(self._due)
            self._now_s = max(self._now_s, due_s)
            act()
        self._now_s = max(self._now_s, moment_s)

    def at(self, moment_s: float, act: Act) -> Act:
        """Have something done at a moment; return what cancels it."""
        entry = (moment_s, next(self._numbers), act)
        heapq.heappush(self._due, entry)

        def cancel() -> None:
            if entry in self._due:
                self._due.remove(entry)
                heapq.heapify(self._due)

        return cancel

    def every(self, period_s: float, act: Act) -> Act:
        """Have something done again and again; return what ends it."""
        pending: list[Act] = []

        def again() -> None:
            pending[:] = [self.at(self._now_s + period_s, again)]
            act()

        def end() -> None:
            pending[0]()

        pending.append(self.at(self._now_s + period_s, again))
        return end

    def wait(self, condition: threading.Condition, for_s: float) -> None:
        """Jump to the next moment at which something is due; always at least one representable step."""
        del condition
        until_s = max(self._now_s + for_s, math.nextafter(self._now_s, math.inf))
        self.pass_to(min(until_s, self._due[0][0]) if self._due else until_s)

    sleep = pass_s


_opened: WeakSet[SimulatedGpu] = WeakSet()
os.register_at_fork(after_in_child=_opened.clear)  # a forked process uses none of its parent's
_numbers = count()


def opened_gpus() -> list[SimulatedGpu]:
    """List the simulated GPUs of this process that are still in use, oldest first: for tests and oracles."""
    return sorted(_opened, key=lambda gpu: gpu.number)


TimeBase = VirtualTime | ScaledTime


class SimulatedGpu(Gpu):
    """A physical device in software: what is asked happens later, and what is read is late and noisy.

    `lock_clock` returns at once; the old clock runs on through call and settle, and calls queue as they do
    in a driver. Ground truth is in `truth` and `true_now`. ``slowness`` is how many times longer everything
    takes on it, for no reason that it gives.
    """

    def __init__(self, settings: SimulatedSettings, index: int = 0, *, time: TimeBase | None = None) -> None:
        self.settings = settings
        self.model = model_named(settings.gpu)
        self.truth = Truth()
        self.slowness = 1.0
        self.number = next(_numbers)
        self._index = index
        own_time = VirtualTime() if settings.time == "virtual" else ScaledTime(settings.time_scale)
        self._time = own_time if time is None else time
        self._random = Random(f"{settings.seed}/{index}")  # noqa: S311 - repeatable noise, not a secret
        model, now_s = self.model, self._time.now_s()
        self._counter = EnergyCounter(
            period_s=model.counter_period_s,
            window_s=model.counter_window_s,
            noise=settings.counter_noise,
            start_s=now_s,
            random=self._random,
        )
        self._own_cap_w = model.power_cap_w if settings.power_cap_w is None else settings.power_cap_w
        self._timeline = Timeline(model, self._counter, start_s=now_s)
        self._timeline.limit(settings.throttle_mhz or model.max_clock_mhz, self._own_cap_w)
        self._changed = threading.Condition()
        total_s, share = model.call_s + model.settle_s, 1.0
        if settings.switch_latency_s is not None:  # call and settle, stretched to the total that the user set
            share = settings.switch_latency_s / total_s
        self._change = ClockChange(model.call_s * share, model.settle_s * share, model.settle_s * share)
        self._free_s = self._in_force_s = -math.inf  # of the driver's last call, and of its clock
        memory_mhz = model.memory_clocks_mhz
        self._memory_why_not = (
            None if len(memory_mhz) > 1 else f"it has one memory clock, {memory_mhz[0]} MHz"
        )
        self._refused_mhz: frozenset[int] = frozenset()
        self._wanted_mhz = self.model.max_clock_mhz
        self._wanted_memory_mhz = self.model.memory_clocks_mhz[0]
        _opened.add(self)

    def identify(self) -> Identity:
        """Name the model; the UUID follows from seed and index, so it is the same in every run."""
        digest = hashlib.sha256(f"{self.model.key}/{self.settings.seed}/{self._index}".encode()).hexdigest()
        uuid = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
        return Identity(self.model.name, uuid, f"simulated:{self._index:02x}", "simulated", self._index)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            self.model.clocks_mhz,
            self.model.memory_clocks_mhz,
            can_lock=True,
            why_not=None,
            counter_period_s=self.model.counter_period_s,
            switch_latency_s=self._change.longest_s,
            switch_call_s=self._change.call_s,
            memory_why_not=self._memory_why_not,
        )

    def lock_clock(self, clock_mhz: int) -> None:
        """Schedule a switch, unless ``refuses_mhz`` names the clock; the last one again costs nothing."""
        self.check_clock(clock_mhz)
        if clock_mhz in self.settings.refuses_mhz:
            self._refused_mhz |= {clock_mhz}
            raise ValueRefusedError(f"{self.model.name}: lock {clock_mhz} MHz: refused")
        self.truth.locks += bool(self.truth.count)
        self._switch(clock_mhz)

    def refused_mhz(self) -> frozenset[int]:
        return self._refused_mhz

    def reset_clock(self) -> None:
        self._switch(self.model.max_clock_mhz)

    def lock_memory_clock(self, memory_mhz: int) -> None:
        if self._memory_why_not is not None:
            raise DeviceUnsupportedError(f"{self.model.name}: {self._memory_why_not}")
        if memory_mhz not in self.model.memory_clocks_mhz:
            known = ", ".join(map(str, self.model.memory_clocks_mhz))
            raise DeviceUnsupportedError(
                f"{memory_mhz} MHz is not a memory clock of {self.model.name}: it has {known}"
            )
        self._switch(None, memory_mhz)

    def reset_memory_clock(self) -> None:
        self._switch(None, self.model.memory_clocks_mhz[0])

    def achieved(self) -> Achieved:
        with self._at_present() as line:
            held_mhz, reasons = line.held_mhz(), EventReason.NONE
            if line.limit_mhz < line.requested_mhz:
                reasons |= EventReason.SW_THERMAL
            if held_mhz < min(line.requested_mhz, line.limit_mhz):
                reasons |= EventReason.SW_POWER_CAP
            return Achieved(round(held_mhz), reasons)

    def energy_j(self) -> float:
        with self._at_present():
            return self._counter.reading_j

    def temperature_c(self) -> float | None:
        with self._at_present() as line:
            return float(round(line.temperature_c))

    def now_s(self) -> float:
        return self._time.now_s()

    @property
    def virtual_time(self) -> VirtualTime | None:
        """Its own clock, for who lets it pass; None where the host's clock is the time."""
        return self._time if isinstance(self._time, VirtualTime) else None

    def wall_s(self, device_s: float) -> float:
        return self._time.wall_s(device_s)

    def sleep(self, device_s: float) -> None:
        self._time.sleep(device_s)

    def close(self) -> None:
        self.reset_clock()
        self.reset_memory_clock()

    def begin(self, work: AnyWork | KernelSequence) -> Task:
        """Start an instruction; its true amount is drawn around ``work``."""
        factor = max(0.5, 1.0 + self._random.gauss(0.0, self.settings.noise))
        with self._at_present() as line:
            return line.begin(work.times(factor * self.slowness))

    def release(self, task: Task) -> None:
        with self._at_present() as line:
            line.release(task)

    def wait(self, task: Task) -> None:
        """Return when a released task has ended, at whatever clocks are in force meanwhile."""
        while True:
            with self._at_present() as line:
                if task.ended_s is not None:
                    self.truth.record(task)
                    return
                left_s = line.finish_s() - self._time.now_s()
                self._time.wait(self._changed, max(0.0, left_s))

    def abandon(self, task: Task) -> None:
        """Drop an instruction whose handler failed; what it has cost stays."""
        with self._at_present() as line:
            line.abandon(task)

    def throttle(
        self, clock_mhz: int | None = None, *, power_w: float | None = None, warmer_k: float = 0.0
    ) -> None:
        """Hold clock and power at or below limits, as heat and caps do, in warmer air; without, lift them."""
        model = replace(self.model, ambient_c=self.model.ambient_c + warmer_k)
        with self._at_present() as line:
            line.model = model if warmer_k else self.model
            line.limit(clock_mhz or model.max_clock_mhz, power_w or self._own_cap_w)
            self._changed.notify_all()

    def true_now(self) -> TruthNow:
        with self._at_present() as line:
            seen = line.power_w(), line.held_mhz(), line.temperature_c, line.memory_mhz
            return TruthNow(line.time_s, line.energy_j, line.busy_s, *seen)

    @contextmanager
    def _at_present(self) -> Iterator[Timeline]:
        with self._changed:
            self._timeline.advance(self._time.now_s())
            yield self._timeline

    def _switch(self, clock_mhz: int | None, memory_mhz: int | None = None) -> None:
        with self._at_present() as line:
            clock_mhz = None if clock_mhz == self._wanted_mhz else clock_mhz
            memory_mhz = None if memory_mhz == self._wanted_memory_mhz else memory_mhz
            if clock_mhz is None and memory_mhz is None:
                return
            self._wanted_mhz = clock_mhz or self._wanted_mhz
            self._wanted_memory_mhz = memory_mhz or self._wanted_memory_mhz
            begins_s = max(line.time_s, self._free_s)
            self._free_s = begins_s + self._change.call_s
            self._in_force_s = max(begins_s + self._change.longest_s, self._in_force_s)
            line.switch(clock_mhz, self._in_force_s, memory_mhz=memory_mhz)
            self._changed.notify_all()
