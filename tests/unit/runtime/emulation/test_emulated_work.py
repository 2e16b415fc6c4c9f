"""Instructions that last as long as on a simulated GPU: a listener in front of the session's."""

import threading

import pytest

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation import EmulatedWork, works_of
from perseus_ds.schedule import Kind, Load, textbook

ONE = Batch(1)
WORKS = works_of({0: 1.0}, SimulatedSettings(mean_forward_s=0.4, backward_over_forward=2.0))


class Marking:
    """Notes when it is called, by the GPU's time."""

    def __init__(self, time: VirtualTime, *, wants: bool = True) -> None:
        self.time = time
        self.wants = wants
        self.calls: list[tuple[str, float]] = []

    def iteration_begins(self, batch: Batch) -> bool:
        self.note("begins")
        return self.wants and batch == Batch(1)

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.note(f"before {kind.value}")

    def after(self, kind: Kind) -> None:
        self.note(f"after {kind.value}")

    def iteration_ends(self) -> None:
        self.note("ends")

    def other_schedule_begins(self) -> None:
        self.note("other")

    def iteration_broke(self) -> None:
        self.note("broke")

    def note(self, what: str) -> None:
        self.calls.append((what, round(self.time.now_s(), 9)))


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def gpu(time: VirtualTime) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(noise=0.0), time=time)


def emulated(marking: Marking, gpu: SimulatedGpu) -> EmulatedWork:
    return EmulatedWork(marking, gpu, WORKS, textbook("1f1b", stages=1, microbatches=1).orders[0])


def run(work: EmulatedWork, *kinds: Kind, batch: Batch = ONE) -> None:
    if work.iteration_begins(batch):
        for kind in kinds:
            work.before(kind)
            work.after(kind)
    work.iteration_ends()


def test_marks_lie_around_the_gpus_work(gpu: SimulatedGpu, time: VirtualTime) -> None:
    marking = Marking(time)
    run(emulated(marking, gpu), Kind.FORWARD, Kind.SEND_GRAD, Kind.BACKWARD)
    assert marking.calls == [
        ("begins", 0.0),
        ("before F", 0.0),
        ("after F", 0.4),
        ("before SG", 0.4),
        ("after SG", 0.4),
        ("before B", 0.4),
        ("after B", 1.2),
        ("ends", 1.2),
    ]


def test_a_batch_that_is_not_wanted_takes_its_time_all_the_same(gpu: SimulatedGpu, time: VirtualTime) -> None:
    marking = Marking(time)
    run(emulated(marking, gpu), *[Kind.FORWARD] * 2, *[Kind.BACKWARD] * 2, batch=Batch(2))
    assert marking.calls == [("begins", 0.0), ("ends", 2.4)]


def test_the_hosts_failure_leaves_the_gpu_idle(gpu: SimulatedGpu, time: VirtualTime) -> None:
    marking = Marking(time)
    work = emulated(marking, gpu)
    work.iteration_begins(Batch(1))
    work.before(Kind.FORWARD)
    work.iteration_broke()
    assert marking.calls[-1][0] == "broke"
    run(work, Kind.FORWARD)
    assert time.now_s() == pytest.approx(0.4)


def test_a_waiting_instruction_follows_a_change_from_another_thread() -> None:
    gpu = SimulatedGpu(SimulatedSettings(time="scaled", noise=0.0, time_scale=0.05, switch_latency_s=0.0))
    task = gpu.begin(Work(4.0, memory_bound=0.0))
    gpu.release(task)
    waiting = threading.Thread(target=gpu.wait, args=(task,))
    waiting.start()
    gpu.lock_clock(705)
    waiting.join()
    assert task.ended_s - task.started_s > 5.0


def test_a_larger_microbatch_is_as_much_more_work_both_ways(gpu: SimulatedGpu, time: VirtualTime) -> None:
    work = emulated(Marking(time), gpu)
    spans = []
    for size in (100, 50, 300):
        begun_s = time.now_s()
        work.iteration_begins(ONE)
        work.before(Kind.FORWARD, Load(size))
        work.after(Kind.FORWARD)
        work.before(Kind.BACKWARD)
        work.after(Kind.BACKWARD)
        work.iteration_ends()
        spans.append(time.now_s() - begun_s)
    assert spans == pytest.approx([1.2, 0.6, 3.6])
