"""The simulated GPU behind the `Gpu` interface, and the work side that emulation drives."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from itertools import count
from random import Random
from weakref import WeakSet

from perseus_ds.device.changing.clock_change import ChangeQueue, ClockChange
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.record import Achieved, Capabilities, EventReason, Identity
from perseus_ds.device.simulated.counter import EnergyCounter
from perseus_ds.device.simulated.laws import AnyWork
from perseus_ds.device.simulated.models import GpuModel, model_named
from perseus_ds.device.simulated.sequence import KernelSequence
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.device.simulated.timebase import ScaledTime, TimeBase, VirtualTime
from perseus_ds.device.simulated.timeline import Task, Timeline
from perseus_ds.device.simulated.truth import Truth, TruthNow
from perseus_ds.errors import DeviceUnsupportedError, ValueRefusedError

_opened: WeakSet[SimulatedGpu] = WeakSet()
_numbers = count()


def opened() -> list[SimulatedGpu]:
    """List the simulated GPUs of this process that are still in use, oldest first: for tests and oracles."""
    return sorted(_opened, key=lambda gpu: gpu.number)


class SimulatedGpu(Gpu):
    """A physical device in software: what is asked happens later, and what is read is late and noisy.

    `lock_clock` returns at once; the old clock runs on through call and settle, and calls queue as they do
    in a driver. Ground truth is in `truth` and `true_now`. ``slowness`` is how many times longer everything
    takes on it, for no reason that it gives.
    """

    def __init__(self, settings: SimulatedSettings, index: int = 0, *, time: TimeBase | None = None) -> None:
        self.settings = settings
        self.model = model_named(settings.gpu)
        self.truth = Truth(self.model)
        self.slowness = 1.0
        self.number = next(_numbers)
        self._index = index
        self._time = _time_of(settings) if time is None else time
        self._random = Random(f"{settings.seed}/{index}")  # noqa: S311 - repeatable noise, not a secret
        self._timeline = self._start()
        self._changed = threading.Condition()
        self._change = _change_of(self.model, settings)
        self._queue = ChangeQueue(self._change)
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
        """Declare the model's grid, counter and latency."""
        return Capabilities(
            self.model.clocks_mhz,
            self.model.memory_clocks_mhz,
            can_lock=True,
            why_not=None,
            counter_period_s=self.model.counter_period_s,
            switch_latency_s=self._change.longest_s,
            switch_call_s=self._change.call_s,
            memory_why_not=self._memory_why_not(),
        )

    def lock_clock(self, clock_mhz: int) -> None:
        """Schedule a switch; asking again for the clock last asked for costs nothing.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid.
            ValueRefusedError: it is one of those that ``refuses_mhz`` names.
        """
        if clock_mhz not in self.model.clocks_mhz:
            grid = self.capabilities().grid
            raise DeviceUnsupportedError(
                f"{clock_mhz} MHz is not a clock of {self.model.name}: it has {grid}"
            )
        if clock_mhz in self.settings.refuses_mhz:
            self._refused_mhz |= {clock_mhz}
            raise ValueRefusedError(f"{self.model.name}: lock {clock_mhz} MHz: refused")
        self.truth.locks += bool(self.truth.count)
        self._switch(clock_mhz)

    def refused_mhz(self) -> frozenset[int]:
        """Those of ``refuses_mhz`` that were asked for."""
        return self._refused_mhz

    def reset_clock(self) -> None:
        """Go back to the maximum."""
        self._switch(self.model.max_clock_mhz)

    def lock_memory_clock(self, memory_mhz: int) -> None:
        """Schedule a switch of the memory clock, as `lock_clock` does for the core's.

        Raises:
            DeviceUnsupportedError: the model has no such memory clock, or one only.
        """
        why_not = self._memory_why_not()
        if why_not is not None:
            raise DeviceUnsupportedError(f"{self.model.name}: {why_not}")
        if memory_mhz not in self.model.memory_clocks_mhz:
            known = ", ".join(map(str, self.model.memory_clocks_mhz))
            raise DeviceUnsupportedError(
                f"{memory_mhz} MHz is not a memory clock of {self.model.name}: it has {known}"
            )
        self._switch(None, memory_mhz)

    def reset_memory_clock(self) -> None:
        """Go back to the highest memory clock."""
        self._switch(None, self.model.memory_clocks_mhz[0])

    def achieved(self) -> Achieved:
        """Read the clock that is held, under cap and throttle."""
        with self._changed:
            self._advance()
            held_mhz = self._timeline.held_mhz()
            limited = self._timeline.limit_mhz < self._timeline.requested_mhz
            capped = held_mhz < min(self._timeline.requested_mhz, self._timeline.limit_mhz)
        reasons = EventReason.SW_THERMAL if limited else EventReason.NONE
        if capped:
            reasons |= EventReason.SW_POWER_CAP
        return Achieved(round(held_mhz), self._timeline.memory_mhz, reasons)

    def energy_j(self) -> float:
        """Read the counter as it stood at its last tick."""
        with self._changed:
            self._advance()
            return self._counter.reading_j

    def temperature_c(self) -> float | None:
        """Read the true temperature in whole degrees, as NVML does."""
        with self._changed:
            self._advance()
            return float(round(self._timeline.temperature_c))

    def now_s(self) -> float:
        """Device seconds: its own, or the host's monotonic clock over ``time_scale``."""
        return self._time.now_s()

    @property
    def virtual_time(self) -> VirtualTime | None:
        """Its own clock, for who lets it pass; None where the host's clock is the time."""
        return self._time if isinstance(self._time, VirtualTime) else None

    def wall_s(self, device_s: float) -> float:
        """Host seconds, in scaled time device seconds times ``time_scale``."""
        return self._time.wall_s(device_s)

    def sleep(self, device_s: float) -> None:
        """Let device time pass."""
        self._time.sleep(device_s)

    def close(self) -> None:
        """Reset both clocks."""
        self.reset_clock()
        self.reset_memory_clock()

    def begin(self, work: AnyWork | KernelSequence) -> Task:
        """Start an instruction; its true amount is drawn around ``work``."""
        factor = max(0.5, 1.0 + self._random.gauss(0.0, self.settings.noise))
        with self._changed:
            self._advance()
            return self._timeline.begin(work.scaled(factor * self.slowness))

    def release(self, task: Task) -> None:
        """Report that the host's part of an instruction is over."""
        with self._changed:
            self._advance()
            self._timeline.release(task)

    def wait(self, task: Task) -> None:
        """Return when a released task has ended, at whatever clocks are in force meanwhile."""
        while True:
            with self._changed:
                self._advance()
                if task.ended_s is not None:
                    self.truth.record(task)
                    return
                left_s = self._timeline.finish_s() - self._time.now_s()
                self._time.wait(self._changed, max(0.0, left_s))

    def abandon(self, task: Task) -> None:
        """Drop an instruction whose handler failed; what it has cost stays."""
        with self._changed:
            self._advance()
            self._timeline.abandon(task)

    def throttle(self, clock_mhz: int | None) -> None:
        """Hold the clock at or below a limit, as heat does; ``None`` lifts it."""
        with self._changed:
            self._advance()
            self._timeline.limit(self.model.max_clock_mhz if clock_mhz is None else clock_mhz)
            self._changed.notify_all()

    def cap_power(self, power_w: float | None) -> None:
        """Hold the power at or below a limit from now on; ``None`` restores its own."""
        with self._changed:
            self._advance()
            self._timeline.cap_power(self._own_cap_w if power_w is None else power_w)
            self._changed.notify_all()

    def grow_hungry(self, times: float) -> None:
        """Have it take so many times the power of its model for no reason that it gives, from now on."""
        with self._changed:
            self._advance()
            self._timeline.grow_hungry(times)

    def warm_room(self, by_k: float) -> None:
        """Have it breathe air that is so much warmer than its model's, from now on."""
        with self._changed:
            self._advance()
            self._timeline.model = replace(self.model, ambient_c=self.model.ambient_c + by_k)

    def true_now(self) -> TruthNow:
        """Ground truth at this moment."""
        with self._changed:
            self._advance()
            line = self._timeline
            return TruthNow(
                line.time_s, line.energy_j, line.busy_s, line.power_w(), line.held_mhz(), line.temperature_c
            )

    def _start(self) -> Timeline:
        model, now_s = self.model, self._time.now_s()
        self._counter = EnergyCounter(
            period_s=model.counter_period_s,
            window_s=model.counter_window_s,
            noise=self.settings.counter_noise,
            start_s=now_s,
            random=self._random,
        )
        timeline = Timeline(model, self._counter, start_s=now_s, power_cap_w=self._own_cap_w)
        timeline.limit(self.settings.throttle_mhz or model.max_clock_mhz)
        return timeline

    @property
    def _own_cap_w(self) -> float:
        cap_w = self.settings.power_cap_w
        return self.model.power_cap_w if cap_w is None else cap_w

    def _switch(self, clock_mhz: int | None, memory_mhz: int | None = None) -> None:
        with self._changed:
            self._advance()
            clock_mhz = None if clock_mhz == self._wanted_mhz else clock_mhz
            memory_mhz = None if memory_mhz == self._wanted_memory_mhz else memory_mhz
            if clock_mhz is None and memory_mhz is None:
                return
            going_up = (clock_mhz or 0) > self._wanted_mhz or (memory_mhz or 0) > self._wanted_memory_mhz
            self._wanted_mhz = clock_mhz or self._wanted_mhz
            self._wanted_memory_mhz = memory_mhz or self._wanted_memory_mhz
            now_s = self._timeline.time_s
            in_force_s = self._queue.ask(self._index, now_s, from_mhz=0.0, to_mhz=float(going_up))
            self._timeline.switch(clock_mhz, in_force_s, memory_mhz=memory_mhz)
            self._changed.notify_all()

    def _memory_why_not(self) -> str | None:
        if len(self.model.memory_clocks_mhz) > 1:
            return None
        return f"it has one memory clock, {self.model.memory_clocks_mhz[0]} MHz"

    def _advance(self) -> None:
        self._timeline.advance(self._time.now_s())


def _time_of(settings: SimulatedSettings) -> TimeBase:
    return VirtualTime() if settings.time == "virtual" else ScaledTime(settings.time_scale)


def _change_of(model: GpuModel, settings: SimulatedSettings) -> ClockChange:
    """Call and settle, stretched to the total that the user set."""
    share = 1.0
    if settings.switch_latency_s is not None:
        share = settings.switch_latency_s / (model.call_s + model.settle_s)
    return ClockChange(model.call_s * share, model.settle_s * share, model.settle_s * share)
