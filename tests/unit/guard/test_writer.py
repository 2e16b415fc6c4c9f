"""Requests in order, the last one wins; retries, looks at the clock, conflicts, and a lease that expires."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lone_job import DeskGpu

from perseus_ds.device.gpu import Achieved, ConflictKind, OperatorSettings
from perseus_ds.errors import DeviceError, DeviceLostError, DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.claim import GpuClaim
from perseus_ds.guard.writer import ClockWriter


@dataclass
class Desk:
    """A GPU under control, in a time that the test moves on."""

    lease_s: float = 30.0
    now_s: float = 100.0
    said: list[tuple[ConflictKind, str]] = field(default_factory=list)
    power: OperatorSettings = field(default_factory=OperatorSettings)

    def __post_init__(self) -> None:
        self.gpu = DeskGpu()
        self.gpu.power = self.power
        self.writer = ClockWriter(
            GpuClaim(self.gpu, "job", patience_s=0.0),
            lease_s=self.lease_s,
            warn=lambda kind, line: self.said.append((kind, line)),
            now_s=lambda: self.now_s,
        )
        self.number = 0

    def ask(self, clock_mhz: int | None) -> None:
        self.writer.renew()
        self.put(clock_mhz)
        self.writer.step()

    def put(self, clock_mhz: int | None) -> None:
        self.number += 1
        self.writer.request(self.number, clock_mhz)

    def step(self, after_s: float = 0.0, *, speaks: bool = False) -> list[int | None]:
        """Go on in time; return the calls of the driver until then."""
        self.now_s += after_s
        if speaks:
            self.writer.renew()
        self.writer.step()
        return self.gpu.calls

    def look(self) -> list[int | None]:
        """Go on to the next look, speaking all the time."""
        return self.step(max(self.writer.due_s() - self.now_s, 0.25), speaks=True)

    @property
    def kinds(self) -> list[ConflictKind]:
        return [kind for kind, _ in self.said]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.gpu.moved_mhz = desk.gpu.refuses = None
    desk.writer.release()


@pytest.mark.parametrize(("asked_s", "lapses_s"), [(30.0, 30.0), (-1.0, 0.1), (0.0, 0.1), (1e9, 600.0)])
def test_a_lease_lapses_when_nobody_spoke_within_what_is_allowed(asked_s: float, lapses_s: float) -> None:
    desk = Desk(lease_s=asked_s)
    desk.ask(900)
    assert desk.step(lapses_s * (1 - 1e-9)) == [900]
    assert desk.step(lapses_s * 1e-6) == [900, None]
    assert desk.step() == [900, None], "once"
    desk.ask(705)
    assert desk.gpu.calls == [900, None, 705], "who speaks again is heard again"
    desk.writer.release()


def test_who_was_silent_gets_its_clock_back_by_speaking_and_speaks_to_keep_it(desk: Desk) -> None:
    """A trainer that was stopped goes on where it was: it does not ask again for the clock that it has."""
    desk.ask(900)
    for _ in range(5):
        assert desk.step(29.0, speaks=True) == [900]
    assert desk.step(31.0) == [900, None]
    assert desk.step(speaks=True) == [900, None, 900]
    assert desk.step(1.0, speaks=True) == [900, None, 900], "once"
    desk.ask(None)
    desk.step(31.0)
    assert desk.step(speaks=True) == [900, None, 900, None], "who had given its clock back is left without"


def test_the_next_thing_to_do_is_a_look_or_the_lapse(desk: Desk) -> None:
    assert desk.writer.due_s() == desk.now_s + 30.0
    desk.ask(900)
    assert desk.writer.due_s() < desk.now_s + 0.3
    desk.step(31.0)
    while desk.writer.due_s() is not None:
        desk.step(desk.writer.due_s() - desk.now_s)
    assert desk.gpu.calls == [900, None]


def test_a_gpu_that_is_lost_is_read_no_more_often_than_another(desk: Desk) -> None:
    """Its job may hang for as long as a collective waits: nobody spins, and nobody is flooded, meanwhile."""
    desk.ask(900)
    desk.look()
    desk.gpu.refuses, looks_s = DeviceLostError("lost"), []

    def achieved() -> Achieved:
        looks_s.append(desk.now_s)
        raise DeviceLostError("lost")

    desk.gpu.achieved, until_s = achieved, desk.now_s + 10.0
    while desk.now_s < until_s:
        desk.now_s = max(desk.writer.due_s(), desk.now_s + 0.001)
        desk.writer.renew()
        with contextlib.suppress(DeviceLostError):
            desk.writer.step()
    del desk.gpu.achieved
    assert 20 <= len(looks_s) <= 41, "10 s, four times a second"
    assert desk.kinds == [ConflictKind.GPU_LOST] * len(looks_s)


def test_three_foreign_clocks_in_a_row_and_control_is_given_up(desk: Desk) -> None:
    desk.ask(900)
    desk.look()
    desk.gpu.moved_mhz = 1410
    desk.look()
    desk.look()
    with pytest.raises(DeviceUnavailableError, match=r"1410 MHz"):
        desk.look()
    assert desk.gpu.calls == [900, None]
    assert desk.kinds == [ConflictKind.FOREIGN_CLOCK] * 3


def test_a_good_look_in_between_forgives(desk: Desk) -> None:
    desk.ask(900)
    desk.look()
    for _ in range(4):
        desk.gpu.moved_mhz = 1410
        desk.look()
        desk.look()
        desk.gpu.moved_mhz = None
        desk.look()
    assert desk.gpu.calls == [900]


def test_for_a_clock_that_the_driver_refuses_the_next_higher_one_stands(desk: Desk) -> None:
    """The clock asked for before must not stay: a lower clock would slow down what wanted the higher one."""
    desk.gpu.refuses_mhz = {900, 1410}
    tries: list[int | None] = []
    desk.gpu.before = tries.append
    for clock_mhz in (705, 900, 705, 900, 1410, 705):
        desk.ask(clock_mhz)
        while desk.writer.pending:
            desk.look()
    assert desk.gpu.calls == [705, 1200, 705, 1200, None, 705]
    assert (tries.count(900), tries.count(1410)) == (1, 1), "who was refused once is not asked again"
    text = ConflictKind.CLOCK_REFUSED.text
    assert [line for _, line in desk.said] == [f"{text}: lock {mhz} MHz: refused" for mhz in (900, 1410)]
    assert desk.writer.refused_mhz == 1410


def test_a_gpu_that_cannot_be_let_go_is_closed_all_the_same() -> None:
    desk = Desk()
    desk.ask(900)
    desk.gpu.refuses = DeviceError("busy")
    with pytest.raises(DeviceError, match="busy"):
        desk.writer.release()
    assert desk.gpu.closed == 1


def test_of_requests_that_wait_only_the_last_is_written_and_a_stale_one_never(desk: Desk) -> None:
    for clock_mhz in (900, 1200, 705):
        desk.put(clock_mhz)
    desk.step()
    desk.writer.request(1, 1410)
    assert desk.step() == [705]


def test_what_is_refused_for_a_moment_is_tried_again_with_longer_and_longer_waits(desk: Desk) -> None:
    tries: list[int | None] = []
    desk.gpu.before, desk.gpu.refuses = tries.append, DeviceError("busy")
    waits_s = []
    desk.put(900)
    for count in range(1, 7):
        desk.step()
        desk.step()
        assert len(tries) == count, "not before it is due"
        waits_s.append(desk.writer.due_s() - desk.now_s)
        desk.now_s = desk.writer.due_s()
    assert waits_s == sorted(waits_s)
    assert waits_s[0] < 0.01
    desk.put(705)  # what is newer counts, and the wait goes on
    desk.gpu.refuses = None
    assert desk.step() == [705]
    assert not desk.writer.pending


def test_a_driver_that_refuses_for_long_is_said(desk: Desk) -> None:
    desk.gpu.refuses = DeviceError("busy")
    desk.put(900)
    for _ in range(20):
        desk.writer.step()
        desk.now_s += 0.1
    with pytest.raises(DeviceError, match="busy"):
        desk.step(0.1)


def test_after_a_refusal_nothing_is_skipped_as_done(desk: Desk) -> None:
    """A driver's error says nothing of what stands in it: the clock before is asked for again."""
    desk.ask(705)
    desk.gpu.refuses = DevicePermissionError("no")
    with pytest.raises(DeviceError):
        desk.ask(900)
    desk.gpu.refuses = None
    desk.now_s += 0.1
    desk.ask(705)
    desk.ask(705)
    assert desk.gpu.calls == [705, 705]


def test_a_clock_that_was_given_back_and_stands_is_given_back_again(desk: Desk) -> None:
    desk.ask(705)
    desk.gpu.moved_mhz = 705
    desk.ask(None)
    asked_s = desk.now_s
    desk.now_s = desk.writer.due_s()
    assert desk.now_s == pytest.approx(asked_s + 0.25), "it has had time"
    desk.step()
    desk.gpu.moved_mhz = None
    assert desk.step() == [705, None, None]
    desk.step(0.25)
    assert desk.writer.due_s() > desk.now_s + 1.0, "it is seen to be free: the lease alone is due"


@pytest.mark.parametrize(("calls", "slow_s", "late"), [(40, 0.3, 21), (200, 0.3, 0), (200, 0.9, 4)])
def test_a_higher_clock_is_late_beyond_a_slow_call(desk: Desk, calls: int, slow_s: float, late: int) -> None:
    """A hundred calls show what is slow; one that took longer still is late, and so is each before that."""
    desk.writer.expect(call_s=0.0, latency_s=0.01, held_mhz=0.0)
    desk.gpu.before = lambda _: setattr(desk, "now_s", desk.now_s + desk.call_s)
    for count in range(calls):
        desk.call_s = slow_s if calls < 100 or count % 40 == 1 else 0.003
        desk.ask((900, 1200)[count % 2])
    assert desk.writer.report()["late_raises"] in range(late - 4, late + 5)


@pytest.mark.parametrize("changing", [False, True])
def test_the_clock_is_read_at_a_bounded_rate_however_often_it_changes(desk: Desk, *, changing: bool) -> None:
    looks_s: list[float] = []
    achieved = desk.gpu.achieved
    desk.gpu.achieved = lambda: (looks_s.append(desk.now_s), achieved())[1]
    desk.ask(900)
    for count in range(1, 1001):
        if changing:
            desk.ask(900 if count % 2 else 705)
        for _ in range(6):
            desk.step(0.001, speaks=True)
    assert 20 <= len(looks_s) <= 26, "6 s, four times a second"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from((None, 705, 900, 1410))), min_size=1))
def test_whatever_is_asked_the_final_state_is_the_last_request(events: list[tuple[bool, int | None]]) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERSEUS_GUARD_DIR", f"{folder}/guard")
        desk = Desk()
        for steps, clock_mhz in events:
            desk.put(clock_mhz)
            if steps:
                desk.writer.step()
        desk.writer.step()
        calls = list(desk.gpu.calls)
        desk.writer.release()
    assert (calls[-1] if calls else None) == events[-1][1]
    assert all(first != second for first, second in zip([None, *calls], calls, strict=False))
