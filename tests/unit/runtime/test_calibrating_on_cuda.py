"""Calibration in the first iterations, on the strict double, and the latency that ranks join from theirs."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_cuda import Device, FakeCuda
from lone_job import NotingGpu, events_of, logging_in
from personality_gpu import Character, PersonalityGpu
from virtual_host import NEVER_S, VirtualHost

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import Calibration, calibrate
from perseus_ds.device.gpu import Achieved, Capabilities, EventReason
from perseus_ds.errors import DeviceLostError
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.clocks import ClockThread, DeviceTask
from perseus_ds.runtime.context import Answer, JobContext, SwitchLatency, budget_of, join_calibrations
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.phases import Opened, Phase, WarmUp
from perseus_ds.runtime.status import JobStatus

KERNELS, KERNEL_S = 10, 0.02
WARM_UP = 3
CLOCKS_MHZ = tuple(range(1980, 195, -15))
IDLE_MHZ = 345
CALL_S, UP_S, DOWN_S = 0.010, 0.030, 0.020
"""Seconds that a call keeps the node's driver; from its end until a higher and a lower clock is in force."""


class ClockedGpu(PersonalityGpu):
    """Sets the clock of one of the double's devices, through a driver that all GPUs of the node share.

    With nothing to do its clock is low, which a reason ``tells_idle`` or not. ``capped_mhz`` is what power
    allows. A call that begins in ``hangs`` lasts to its end.
    """

    def __init__(
        self,
        host: VirtualHost,
        device: Device,
        driver: object,
        *,
        tells_idle: bool = True,
        capped_mhz: int = CLOCKS_MHZ[0],
        hangs: tuple[float, float] = (NEVER_S, NEVER_S),
    ) -> None:
        super().__init__(host, Character())
        self._at, self._device, self._driver = host, device, driver
        self._idles = EventReason.GPU_IDLE if tells_idle else EventReason.NONE
        self._capped_mhz, self._hangs = capped_mhz, hangs
        self._wanted: list[tuple[float, int]] = [(-1.0, CLOCKS_MHZ[0])]
        self.sets: list[int | None] = []

    def capabilities(self) -> Capabilities:
        return Capabilities(CLOCKS_MHZ, (1,), True, None, 0.1, 0.037, CALL_S)

    def lock_clock(self, clock_mhz: int) -> None:
        self._set(clock_mhz)

    def reset_clock(self) -> None:
        self._set(None)

    def achieved(self) -> Achieved:
        self._at.sleep(50e-6)
        now_s = self._at.now_s()
        wanted_mhz = next(mhz for since_s, mhz in reversed(self._wanted) if since_s <= now_s)
        if all(op.end_s <= now_s for op in self._device.pending):
            return Achieved(min(wanted_mhz, IDLE_MHZ), self._idles)
        capped = self._capped_mhz < wanted_mhz
        reasons = EventReason.SW_POWER_CAP if capped else EventReason.NONE
        return Achieved(min(wanted_mhz, self._capped_mhz), reasons)

    def _set(self, clock_mhz: int | None) -> None:
        """The call blocks, with the interpreter's lock released; the clock follows."""
        with self._driver:
            begins_s, ends_s = self._hangs
            if begins_s <= self._at.now_s() < ends_s:
                self._at.native(lambda: ends_s)
            self._at.sleep(CALL_S)
        self.sets.append(clock_mhz)
        to_mhz = clock_mhz or CLOCKS_MHZ[0]
        settle_s = UP_S if to_mhz > self._wanted[-1][1] else DOWN_S
        self._wanted.append((self._at.now_s() + settle_s, to_mhz))


class Meeting:
    """Channels on which ranks of one host meet."""

    def __init__(self, host: VirtualHost, size: int) -> None:
        self.host, self.size = host, size
        self.said: list[dict[int, object]] = []

    def of(self, rank: int) -> SimpleNamespace:
        met = count()

        def gather(mine: object) -> list[object]:
            round_ = next(met)
            if len(self.said) <= round_:
                self.said.append({})
            said = self.said[round_]
            said[rank] = mine
            self.host.native(lambda: 0.0 if len(said) == self.size else NEVER_S)
            return [said[one] for one in range(self.size)]

        return SimpleNamespace(rank=rank, size=self.size, gather=gather, broadcast=lambda own: gather(own)[0])


class Rank:
    """A rank that trains from its warm-up until it is calibrated, its host ahead of its device."""

    def __init__(self, meeting: Meeting, number: int, driver: object, folder: Path, **gpu: Any) -> None:  # noqa: ANN401
        self.host, self.cuda = meeting.host, FakeCuda(meeting.host)
        self.cuda.set_device(0)
        self.gpu = ClockedGpu(self.host, self.cuda.devices[0], driver, **gpu)
        self.requests = ClockThread(self.gpu, threads=self.host)
        self.reckoning = SwitchLatency(self.gpu.capabilities())
        config = SimpleNamespace(profile=SimpleNamespace(warmup_iterations=WARM_UP), trace_kernels=0)
        channel, log = meeting.of(number), logging_in(folder, number)
        context = JobContext(None, config, self.reckoning, channel, RunDirectory(folder), log)
        self.phase: Phase = WarmUp(context, self.gpu)
        self.task: DeviceTask | None = None
        self.iterations = 0
        self.longest_s = 0.0

    @property
    def done(self) -> bool:
        return isinstance(self.phase, Opened)

    def iteration(self, *, loaded: bool = True) -> None:
        began_s, task = self.host.now_s(), self.phase.settings.task
        if task is not None and self.task is None:  # as a session does
            self.task = task
            self.requests.run(task)
        ours_s = self.host.now_s() - began_s
        for _ in range(KERNELS):
            self.host.python(1e-3)
            if loaded:
                self.cuda.launch(KERNEL_S)
        if loaded:
            pending = self.cuda.devices[0].pending
            self.host.native(lambda: max((op.end_s for op in pending), default=0.0) - 0.1)
        else:
            self.host.sleep(KERNELS * KERNEL_S)
        status = JobStatus(failed=False, plans_ready=0, iteration_s=self.host.now_s() - began_s)
        began_s = self.host.now_s()
        self.phase = self.phase.next(self.iterations, (), status)
        if self.task is not None and self.phase.settings.task is not self.task:
            self.requests.stop(self.task)
            self.task = None
        self.longest_s = max(self.longest_s, ours_s, self.host.now_s() - began_s)
        self.iterations += 1

    def train(self, *, loaded: bool = True) -> None:
        while not self.done:
            self.iteration(loaded=loaded)
            assert self.iterations < 60


def lone(host: VirtualHost, folder: Path, **gpu: object) -> Rank:
    return Rank(Meeting(host, 1), 0, host.lock(), folder, **gpu)


@pytest.mark.parametrize("tells_idle", [True, False])
def test_an_idling_gpu_is_measured_under_load(host: VirtualHost, tmp_path: Path, *, tells_idle: bool) -> None:
    rank = lone(host, tmp_path, tells_idle=tells_idle)
    rank.gpu.sleep = host.sleep
    before = calibrate(rank.gpu)
    assert before.switch_latency_s is None, "before the first iteration it tells nothing"
    rank.train()
    [event] = events_of(tmp_path)
    assert event["up_s"] == pytest.approx(0.040, abs=0.003)
    assert event["down_s"] == pytest.approx(0.030, abs=0.003)
    assert rank.reckoning.able.switch_latency_s == pytest.approx(0.040, abs=0.003)
    assert rank.phase.found == rank.reckoning.able
    assert rank.gpu.sets[-1] is None
    assert rank.iterations <= WARM_UP + 2, "two iterations of 0.2 s and no more"
    assert rank.longest_s < 0.006, "the training thread did not wait for a driver of 10 ms"


def test_a_gpu_at_its_power_limit_is_measured_up_to_it(host: VirtualHost, tmp_path: Path) -> None:
    lone(host, tmp_path, capped_mhz=1305).train()
    [event] = events_of(tmp_path)
    assert event["up_s"] == pytest.approx(0.040, abs=0.003)
    assert event["unreached"] == 0


def test_a_gpu_that_never_works_is_reckoned_with_as_it_declares(
    host: VirtualHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = lone(host, tmp_path)
    rank.train(loaded=False)
    [line] = capsys.readouterr().err.splitlines()
    assert "idle" in line
    assert "37 ms" in line
    assert rank.reckoning.calibration is None
    rank.requests.close()
    assert rank.gpu.sets[-1] is None


def test_a_driver_that_hangs_costs_a_line_and_no_time(
    host: VirtualHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = lone(host, tmp_path, hangs=(0.3, 30.3))
    rank.train()
    assert host.now_s() < 10.0, "the driver still hangs"
    assert rank.longest_s < 0.006
    assert "37 ms" in capsys.readouterr().err
    host.sleep(40.0)
    assert rank.gpu.sets[-1] is None


def test_an_end_in_the_middle_gives_the_clock_back(host: VirtualHost, tmp_path: Path) -> None:
    rank = lone(host, tmp_path)
    while not any(rank.gpu.sets):
        rank.iteration()
    assert not rank.done
    rank.requests.close()
    assert rank.gpu.sets[-1] is None
    host.sleep(5.0)
    assert rank.gpu.sets[-1] is None


def test_ranks_of_a_node_whose_driver_queues_get_a_default_budget(host: VirtualHost, tmp_path: Path) -> None:
    driver, meeting, size = host.lock(), Meeting(host, 4), 4
    ranks: list[Rank] = []

    def trains(number: int) -> None:
        ranks.append(Rank(meeting, number, driver, tmp_path / str(number)))
        ranks[-1].train()

    threads = [host.start(partial(trains, number), name=f"rank{number}") for number in range(size)]
    for thread in threads:
        thread.join()
    found = ranks[0].reckoning.calibration
    assert found.up_s == pytest.approx(0.040, abs=0.003)
    assert found.together_s == pytest.approx(0.040 + 3 * 0.010, abs=0.005)
    assert {rank.reckoning.able.switch_latency_s for rank in ranks} == {found.together_s}
    budget = budget_of(Objective(), found, ranks[0].reckoning.able, ranks=size)
    assert budget.per_node_per_s == pytest.approx(50.0, rel=0.2), "half of a driver that takes 10 ms a call"


# The latency that ranks join from their calibrations.

MINE = Calibration(0.004, 0.020, 0.018, None, 0.1, 0)
SLOW = Calibration(0.010, 0.046, 0.040, None, 0.1, 0)
NOTHING = Calibration(0.004, None, None, None, 0.1, 1)
ABLE = NotingGpu().capabilities()


def test_the_longest_wait_of_all_ranks_is_the_lead_of_a_higher_clock(log: EventLog, tmp_path: Path) -> None:
    """While the others wait for the driver a lower one may come sooner, and would slow what still runs."""
    able, found = join_calibrations(ABLE, MINE, [replace(MINE, up_s=0.030), SLOW, NOTHING], log)
    assert able.switch_latency_s == 0.046
    assert found == Calibration(0.004, 0.020, 0.018, 0.046, 0.1, 1)
    [event] = events_of(tmp_path)
    assert (event["event"], event["together_s"]) == ("calibrated", 0.046)
    change = SwitchLatency(able, found).change
    assert change.latency_s(1005, 1410) == pytest.approx(0.046)
    assert change.latency_s(1410, 1005) == pytest.approx(0.018)
    assert SwitchLatency(ABLE).change.latency_s(1410, 1005) == ABLE.switch_latency_s


def test_a_rank_by_itself_counts_what_it_missed_once(log: EventLog) -> None:
    alone = replace(MINE, unreached=1)
    _, found = join_calibrations(ABLE, alone, [alone], log)
    assert found.unreached == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NOTHING, "not reached"),
        (replace(NOTHING, idle=1), "idle"),
        (Calibration(0.1, None, None, None, None, 0), "rarely"),
        (DeviceLostError("gone"), "gone"),
    ],
)
def test_what_cannot_be_measured_is_as_declared_and_said_once(
    log: EventLog, capsys: pytest.CaptureFixture[str], answer: Answer, why: str
) -> None:
    able, found = join_calibrations(ABLE, answer, [answer, replace(NOTHING, unreached=0)], log)
    assert (able, found) == (ABLE, None)
    [line] = capsys.readouterr().err.splitlines()
    assert why in line
    assert "20 ms" in line
