"""One rank's window of 1F1B-like iterations on a simulated GPU in virtual time, and what was really true."""

from dataclasses import dataclass

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.profile import CounterTrace, Interval, Window
from perseus_ds.schedule import Instruction, Kind

LETTERS = {"F": Kind.FORWARD, "B": Kind.BACKWARD}
READS_PER_PERIOD = 2


@dataclass(frozen=True)
class Played:
    """The window as a rank sees it, and the GPU that knows better."""

    window: Window
    gpu: SimulatedGpu
    works: dict[Kind, Work]


def play(
    order: str,
    *,
    clock_mhz: int,
    forward_s: float = 0.4,
    backward_s: float = 0.8,
    wait_s: float = 0.15,
    settings: SimulatedSettings | None = None,
) -> Played:
    """Run instructions one after another (F, B; a dot waits) and watch the counter as a thread would."""
    time = VirtualTime()
    gpu = SimulatedGpu(settings or SimulatedSettings(), time=time)
    works = {Kind.FORWARD: Work(forward_s, intensity=0.7), Kind.BACKWARD: Work(backward_s, intensity=0.85)}
    gpu.lock_clock(clock_mhz)
    watch = _Watch(gpu, time)
    watch.pass_s(1.0)
    start_s = time.now_s()
    intervals = [_run(letter, gpu, works, watch, wait_s) for letter in order]
    end_s = time.now_s()
    watch.pass_s(0.3)
    kept = tuple(interval for interval in intervals if interval is not None)
    trace = CounterTrace(watch.times_s, watch.energies_j)
    return Played(Window(clock_mhz, start_s, end_s, kept, trace, achieved_mhz=clock_mhz), gpu, works)


class _Watch:
    """Reads the counter twice per period of virtual time and keeps its changes."""

    def __init__(self, gpu: SimulatedGpu, time: VirtualTime) -> None:
        period_s = gpu.capabilities().counter_period_s
        assert period_s is not None
        self._gpu, self._time = gpu, time
        self._every_s = period_s / READS_PER_PERIOD
        self._next_s = time.now_s()
        self._last_j: float | None = None
        self.times_s: list[float] = []
        self.energies_j: list[float] = []

    def pass_s(self, elapsed_s: float) -> None:
        end_s = self._time.now_s() + elapsed_s
        while self._next_s <= end_s:
            self._time.pass_s(max(0.0, self._next_s - self._time.now_s()))
            self._read()
            self._next_s += self._every_s
        self._time.pass_s(end_s - self._time.now_s())

    def _read(self) -> None:
        energy_j = self._gpu.energy_j()
        if self._last_j is not None and energy_j != self._last_j:
            self.times_s.append(self._time.now_s())
            self.energies_j.append(energy_j)
        self._last_j = energy_j


def _run(
    letter: str, gpu: SimulatedGpu, works: dict[Kind, Work], watch: _Watch, wait_s: float
) -> Interval | None:
    if letter == ".":
        watch.pass_s(wait_s)
        return None
    kind = LETTERS[letter]
    task = gpu.begin(works[kind])
    gpu.release(task)
    start_s = gpu.now_s()
    while task.ended_s is None:
        watch.pass_s(min(1e-3, max(1e-6, gpu._timeline.finish_s() - gpu.now_s())))
        gpu.true_now()
    gpu.wait(task)
    return Interval(Instruction(0, kind, 0), start_s, task.ended_s)
