"""Ranks that meet within computations, each a thread: all are as late as the slowest, and wait at no work."""

from __future__ import annotations

import threading

import pytest
from lone_job import Post, Wanting

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation import EmulatedWork, works_of
from perseus_ds.runtime.emulation_links import CoupledTime
from perseus_ds.schedule import Instruction, Kind

KINDS = [Kind.FORWARD, Kind.BACKWARD, Kind.FORWARD, Kind.BACKWARD]
ORDER = [Instruction(0, kind, place // 2) for place, kind in enumerate(KINDS)]
BATCH = Batch(2)
ONE = SimulatedSettings(noise=0.0, forward_s=(0.4,))


class Unwanting(Wanting):
    """A session that wants nothing: its ranks meet all the same."""

    def iteration_begins(self, batch: object) -> bool:
        self.begins_s.append(self.clock.now_s())
        return False


def run(slowness: list[float], *, wanting: type[Wanting] = Wanting) -> list[tuple[Wanting, SimulatedGpu]]:
    post, ranks, threads = Post(), [], []
    for rank, slower in enumerate(slowness):
        clock = VirtualTime()
        gpu, session = SimulatedGpu(ONE, time=clock), wanting(clock)
        gpu.slowness = slower
        coupled = CoupledTime(session, clock, post.of(rank), rank=rank, peers=range(len(slowness)))
        work = EmulatedWork(coupled, gpu, works_of({0: 1.0}, ONE), ORDER, microbatches=BATCH.microbatches)
        threads.append(threading.Thread(target=computed, args=(work,)))
        ranks.append((session, gpu))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive(), "ranks wait for each other"
    return ranks


def computed(work: EmulatedWork) -> None:
    assert work.iteration_begins(BATCH)
    for kind in KINDS:
        work.before(kind)
        work.after(kind)
    work.iteration_ends()


def test_every_computation_is_as_long_as_that_of_the_slowest() -> None:
    alone = run([1.05])[0][0].ends_s
    for session, _ in run([1.0, 1.05, 0.9]):
        assert session.ends_s == pytest.approx(alone, abs=1e-9)


def test_who_waits_burns_the_power_of_waiting() -> None:
    (slow, alone), fast = (gpu.true_now() for _, gpu in run([1.05, 1.0])), run([1.0])[0][1].true_now()
    assert slow.time_s == pytest.approx(alone.time_s)
    waited_j = alone.energy_j - fast.energy_j
    waiting_w = waited_j / (alone.time_s - fast.time_s)
    assert 0.0 < waiting_w < 0.5 * fast.energy_j / fast.time_s


def test_who_is_not_listened_to_meets_as_well() -> None:
    for session, gpu in run([1.0, 1.05], wanting=Unwanting):
        assert session.ends_s == []
        assert gpu.true_now().time_s == pytest.approx(run([1.05])[0][0].ends_s[-1])
