"""Clock switches, work and energy in virtual time, against sums done by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.gpu import EventReason
from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.gpu import SimulatedGpu, Task, VirtualTime
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings

WORK = Work(0.4, memory_bound=0.0)
LATENCY_S = 0.037


def a100(time: VirtualTime, **settings: float) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(**{"noise": 0.0, "counter_noise": 0.0, **settings}), time=time)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime(1000.0)


def run(gpu: SimulatedGpu, work: Work = WORK) -> Task:
    task = gpu.begin(work)
    gpu.release(task)
    gpu.wait(task)
    return task


def test_the_old_clock_runs_on_through_call_and_settle_and_calls_queue(time: VirtualTime) -> None:
    gpu = a100(time)
    gpu.lock_clock(705)
    gpu.lock_clock(900)
    for pass_s, clock_mhz in ((LATENCY_S - 0.001, 1410), (0.0015, 705), (0.010, 900)):
        time.pass_s(pass_s)
        assert gpu.achieved().clock_mhz == clock_mhz


def test_a_clock_that_changes_under_way_slows_the_rest_and_asking_again_is_free(time: VirtualTime) -> None:
    gpu = a100(time)
    gpu.lock_clock(705)
    task = run(gpu)
    assert task.ended_s - task.started_s == pytest.approx(LATENCY_S + (0.4 - LATENCY_S) * 2)
    gpu = a100(time)
    for pass_s in (0.02, 0.018):
        gpu.lock_clock(705)
        time.pass_s(pass_s)
    assert gpu.achieved().clock_mhz == 705


def test_a_slow_handler_keeps_the_gpu_busy_and_is_counted(time: VirtualTime) -> None:
    gpu = a100(time)
    task = gpu.begin(WORK)
    time.pass_s(0.6)
    gpu.release(task)
    gpu.wait(task)
    assert task.ended_s - task.finished_s == pytest.approx(0.2)
    assert (gpu.truth.overruns, gpu.truth.count) == (1, 1)
    assert gpu.true_now().busy_s == pytest.approx(0.6)


def test_energy_is_power_times_time_through_every_phase(time: VirtualTime) -> None:
    gpu = a100(time)
    assert run(gpu).energy_j == pytest.approx(physics.energy_j(gpu.model, 1410, WORK), rel=0.01)
    busy_j = gpu.true_now().energy_j
    time.pass_s(1.0)
    assert gpu.true_now().energy_j - busy_j == pytest.approx(85.4, rel=0.02)


def test_the_counter_follows_the_truth_late_and_stands_still_between_ticks(time: VirtualTime) -> None:
    gpu = a100(time)
    for _ in range(50):
        run(gpu)
    true_j = gpu.true_now().energy_j
    assert gpu.energy_j() <= true_j
    assert gpu.energy_j() == pytest.approx(true_j, rel=0.02)
    seen = set()
    for _ in range(1000):
        time.pass_s(0.001)
        seen.add(gpu.energy_j())
    assert 10 <= len(seen) <= 12


def test_noise_is_seeded(time: VirtualTime) -> None:
    def durations(seed: int) -> list[float]:
        gpu = a100(VirtualTime(), seed=seed, noise=0.01)
        return [task.ended_s - task.started_s for task in (run(gpu) for _ in range(5))]

    assert durations(1) == durations(1)
    assert durations(1) != durations(2)


def test_a_throttled_or_capped_device_says_why(time: VirtualTime) -> None:
    gpu = a100(time, throttle_mhz=900)
    assert (gpu.achieved().clock_mhz, gpu.achieved().event_reasons) == (900, EventReason.SW_THERMAL)
    gpu.throttle(None)
    assert gpu.achieved().clock_mhz == 1410
    gpu = a100(time)
    gpu.begin(Work(1.0, intensity=1.0))
    time.pass_s(0.5)
    assert gpu.achieved().event_reasons is EventReason.SW_POWER_CAP
    assert gpu.achieved().clock_mhz < 1410
    assert gpu.true_now().power_w == pytest.approx(400.0, rel=0.02)


def test_what_ran_before_a_throttle_ran_at_the_clock_before(time: VirtualTime) -> None:
    gpu, work = a100(time), Work(1.0, intensity=0.5)
    full_s, slow_s = (physics.duration_s(gpu.model, mhz, work) for mhz in (1410, 705))
    task = gpu.begin(work)
    gpu.release(task)
    time.pass_s(full_s / 2)
    gpu.throttle(705)
    gpu.wait(task)
    assert task.ended_s - task.started_s == pytest.approx((full_s + slow_s) / 2, rel=1e-6)


@given(
    st.lists(st.tuples(st.sampled_from((210, 705, 900, 1200, 1410)), st.floats(0.0, 0.3)), max_size=20),
    st.floats(0.01, 2.0),
)
def test_whatever_the_switches_work_is_conserved(switches: list[tuple[int, float]], seconds: float) -> None:
    time = VirtualTime(5e7)  # the host's clock over a small scale: coarse floats
    gpu = a100(time)
    task = gpu.begin(Work(seconds, memory_bound=0.1))
    for clock_mhz, pause_s in switches:
        gpu.lock_clock(clock_mhz)
        time.pass_s(pause_s)
    gpu.release(task)
    gpu.wait(task)
    lasted_s = task.finished_s - task.started_s
    slowest = Work(1.0, memory_bound=0.1).rate(gpu.model, 210, 1593)
    assert seconds - 1e-6 <= lasted_s <= seconds / slowest + 1e-6
