"""The state of a simulated GPU through time: clock, work, heat and energy, piece by piece."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from perseus_ds.device.simulated import laws, physics
from perseus_ds.device.simulated.counter import EnergyCounter
from perseus_ds.device.simulated.laws import AnyWork
from perseus_ds.device.simulated.models import GpuModel
from perseus_ds.device.simulated.sequence import KernelSequence, pieces


@dataclass(slots=True)
class Task:
    """One instruction on the GPU; it ends when its work is done *and* its host handler has returned.

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

    @property
    def overrun_s(self) -> float:
        """How much longer the host's handler took than the GPU."""
        if self.ended_s is None or self.finished_s is None:
            return 0.0
        return self.ended_s - self.finished_s


class Timeline:
    """Moves forward only. Between two marks nothing changes, so every piece has a closed form.

    Power and speed are worked out when clock, limit or task change, not at every mark. A waiting host wakes
    up to a few hundred marks, and the time that they take delays it.
    """

    def __init__(
        self, model: GpuModel, counter: EnergyCounter, *, start_s: float, power_cap_w: float
    ) -> None:
        self.model = model
        self.time_s = start_s
        self.energy_j = 0.0
        self.busy_s = 0.0
        self.temperature_c = model.reference_c
        self.requested_mhz = model.max_clock_mhz
        self.memory_mhz = model.memory_clocks_mhz[0]
        self.limit_mhz = model.max_clock_mhz
        self._hunger = 1.0
        self.task: Task | None = None
        self._counter = counter
        self._power_cap_w = power_cap_w
        self._pending: deque[tuple[float, int | None, int | None]] = deque()
        self._refresh()

    def advance(self, to_s: float) -> None:
        """Let time pass up to ``to_s``; a time that has passed already changes nothing.

        Cost: O(marks between), about two per counter period.
        """
        while self.time_s < to_s:
            mark_s = self._next_mark_s()
            self._pass(min(mark_s, to_s))
            if mark_s <= to_s:
                self._act(mark_s)

    def switch(self, clock_mhz: int | None, at_s: float, *, memory_mhz: int | None = None) -> None:
        """Have clocks come into force at a later time; switches come in ascending time."""
        self._pending.append((at_s, clock_mhz, memory_mhz))

    def limit(self, clock_mhz: int) -> None:
        """Hold the clock at or below a limit from now on."""
        self.limit_mhz = clock_mhz
        self._refresh()

    def cap_power(self, power_w: float) -> None:
        """Hold the power at or below a limit from now on."""
        self._power_cap_w = power_w
        self._refresh()

    def grow_hungry(self, times: float) -> None:
        """Take so many times as much power as the model, from now on."""
        self._hunger = times
        self._refresh()

    def begin(self, work: AnyWork | KernelSequence) -> Task:
        """Start work now."""
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
        """End a task now, done or not."""
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
        """True power now."""
        leak_w = self.model.leakage_w_per_k * (self.temperature_c - self.model.reference_c)
        return self._base_w + leak_w

    @property
    def _work(self) -> AnyWork | None:
        return None if self.task is None else self.task.work

    def _refresh(self) -> None:
        held_mhz = self.held_mhz()
        self._base_w = self._hunger * laws.power_w(self.model, held_mhz, self.memory_mhz, self._work)
        self._rate_now = laws.rate(self.model, held_mhz, self.memory_mhz, self._work)

    def _held_mhz(self, clock_mhz: int, memory_mhz: int, work: AnyWork | None) -> float:
        asked_mhz = min(clock_mhz, self.limit_mhz)
        return laws.held_mhz(self.model, asked_mhz, memory_mhz, work, self._power_cap_w)

    def _rate(self, clock_mhz: int, memory_mhz: int, work: AnyWork) -> float:
        held_mhz = self._held_mhz(clock_mhz, memory_mhz, work)
        return laws.rate(self.model, held_mhz, memory_mhz, work)

    def _next_mark_s(self) -> float:
        mark_s = self._counter.next_mark_s
        if self._pending:
            mark_s = min(mark_s, self._pending[0][0])
        if self.task is not None and self.task.finished_s is None:
            mark_s = min(mark_s, self.time_s + self.task.remaining_s / self._rate_now)
        return max(mark_s, self.time_s)

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
        if task is not None and task.finished_s is None and self._is_done(task):
            if task.rest:
                task.work, task.remaining_s = task.rest.popleft()
                self._refresh()
                return
            task.remaining_s, task.finished_s = 0.0, mark_s
            if task.released:
                self._end(task)

    def _is_done(self, task: Task) -> bool:
        """Whether what is left is below the resolution of the time base (never a fixed constant)."""
        return self.time_s + task.remaining_s <= math.nextafter(self.time_s, math.inf)

    def _end(self, task: Task) -> None:
        task.ended_s = self.time_s
        task.energy_j = self.energy_j - task.started_j
        self.task = None
        self._refresh()
