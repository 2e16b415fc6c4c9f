"""Requests reach the device in stream order and at their moments, and the clock is given back."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lone_job import DeskGpu, HandMoment, NotingGpu
from virtual_host import VirtualHost, closing

from perseus_ds.device.clock_agenda import LATE_S, DatedClock, RequestCounts
from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.errors import DeviceLostError, DeviceUnsupportedError
from perseus_ds.guard.claim import GpuClaim
from perseus_ds.guard.open import NullGpu
from perseus_ds.guard.writer import ClockWriter
from perseus_ds.runtime.clocks import Act, Ask, ClockThread, LocalClocks

SECOND = 1.0


class DatingGpu(NotingGpu):
    """Notes when every clock was asked for; each call takes ``call_s``."""

    def __init__(self, host: VirtualHost | VirtualTime) -> None:
        super().__init__()
        self._host = host
        self.calls_s: list[float] = []
        self.dated: list[tuple[int, int | None]] = []

    def now_s(self) -> float:
        return self._host.now_s()

    def _note(self, clock_mhz: int | None) -> None:
        self.dated.append((round(1e3 * self.now_s()), clock_mhz))
        super()._note(clock_mhz)
        if self.calls_s:
            self._host.sleep(self.calls_s.pop(0))


@dataclass(frozen=True)
class At:
    """A point that the device reaches at a moment of the host's time."""

    host: VirtualHost
    at_s: float

    def __call__(self) -> float:
        self.host.native(lambda: self.at_s)
        return self.at_s


Put = tuple[tuple[Ask, ...], float, HandMoment | None]


@pytest.fixture
def gpu() -> NotingGpu:
    return NotingGpu()


@pytest.fixture
def requests(gpu: NotingGpu) -> Iterator[ClockThread]:
    requests = ClockThread(gpu)
    yield requests
    requests.close()


def at(clock_mhz: int | None, moment: HandMoment | None = None, *, delay_s: float = 0.0) -> Put:
    return (Ask(clock_mhz, delay_s),), 0.0, moment


def test_asking_again_for_the_same_clock_costs_the_device_nothing(
    gpu: NotingGpu, requests: ClockThread
) -> None:
    for clock in (900, 900, 900, 800):
        requests.put(*at(clock))
    gpu.wait_for(2)
    assert requests.counts.changes == 2
    requests.close()
    assert gpu.asked == [900, 800, None]


def test_the_host_running_ahead_skips_nothing(gpu: NotingGpu, requests: ClockThread) -> None:
    """All of an iteration is issued before the device begins: every clock still comes at its moment."""
    moments = [HandMoment() for _ in range(4)]
    for clock, moment in zip((900, 800, 700, 600), moments, strict=True):
        requests.put(*at(clock, moment))
    for count, moment in enumerate(moments, start=1):
        assert moment.awaited.wait(10.0)
        assert len(gpu.asked) == count - 1
        moment.reach()
        gpu.wait_for(1)
    assert gpu.asked == [900, 800, 700, 600]


def test_so_does_what_is_asked_at_different_points(host: VirtualHost) -> None:
    """A delay counts from when the device was there, however long the thread was busy then."""
    gpu = DatingGpu(host)
    gpu.calls_s = [0.040]
    requests = ClockThread(gpu, threads=host)
    requests.put((Ask(900),), host.now_s(), At(host, 0.1))
    requests.put((Ask(800, 0.05),), host.now_s(), At(host, 0.11))
    host.sleep(SECOND)
    assert gpu.dated == [(100, 900), (160, 800)]


def test_a_call_that_returns_late_is_counted_late(host: VirtualHost) -> None:
    """Lateness was once counted from the thread's own wake-up, before the device was asked."""
    gpu = DatingGpu(host)
    gpu.calls_s = [4.0 * LATE_S] * 10
    requests = ClockThread(gpu, threads=host)
    for place in range(10):
        clock_mhz = (900, 800)[place % 2]
        requests.put((Ask(clock_mhz),), host.now_s(), At(host, 0.1 * (place + 1)))
    host.sleep(2.0 * SECOND)
    assert (requests.counts.changes, requests.counts.late) == (10, 10)
    assert requests.counts.longest_late_s == pytest.approx(4.0 * LATE_S, abs=1e-3)


def test_a_call_that_hangs_for_half_a_minute_holds_up_no_training(host: VirtualHost) -> None:
    """Down at 0.1 s; up at 0.2 s, in a call that hangs; all else is asked for when it returns."""
    gpu = DatingGpu(host)
    requests = ClockThread(gpu, threads=host)
    gpu.calls_s = [0.01, 30.0]
    for place, clock_mhz in enumerate((800, 1000, 900, 1000, 800), start=1):
        requests.put((Ask(clock_mhz),), host.now_s(), At(host, 0.1 * place))
    assert host.now_s() < 0.1
    host.sleep(31.0)
    assert gpu.asked == [800, 1000, 900, 1000, 800]
    assert host.now_s() < 40.0


def test_who_closes_while_a_call_hangs_waits_for_a_moment_and_gets_the_clock_back_later(
    host: VirtualHost,
) -> None:
    gpu = DatingGpu(host)
    requests = ClockThread(gpu, threads=host)
    gpu.calls_s = [30.0]
    requests.put((Ask(800),), host.now_s(), At(host, 0.1))
    host.sleep(0.2)
    began_s = host.now_s()
    requests.close()
    assert host.now_s() - began_s < 2.1
    host.sleep(40.0)
    assert gpu.asked == [800, None]


def test_a_busy_interpreter_makes_no_delayed_request_late_twice(host: VirtualHost) -> None:
    """Python that never lets go costs one switch interval at the point, and none for what comes after."""
    gpu = DatingGpu(host)
    requests = ClockThread(gpu, threads=host)
    requests.put((Ask(900), Ask(800, 0.1)), host.now_s(), At(host, 0.05))
    host.python(0.5)
    (first_ms, _), (second_ms, _) = gpu.dated
    assert first_ms <= 50 + 2e3 * host.switch_s
    assert second_ms <= 150 + 2e3 * host.switch_s


def test_a_moment_that_never_comes_is_dropped_alone(host: VirtualHost) -> None:
    gpu = DatingGpu(host)
    requests = ClockThread(gpu, threads=host)
    requests.put((Ask(900),), host.now_s(), At(host, 0.1))
    lost = HandMoment(math.inf)
    lost.reach()
    requests.put((Ask(800),), host.now_s(), lost)
    requests.put((Ask(1000),), host.now_s(), At(host, 0.3))
    host.sleep(SECOND)
    assert gpu.dated == [(100, 900), (300, 1000)]
    assert requests.error is None


@pytest.mark.parametrize("fails", [False, True])
def test_the_thread_prepares_itself_before_it_asks_for_anything(host: VirtualHost, *, fails: bool) -> None:
    gpu = DatingGpu(host)
    seen: list[tuple[str, int]] = []

    def prepare() -> None:
        seen.append((host.thread, len(gpu.dated)))
        if fails:
            raise RuntimeError("no such device")

    requests = ClockThread(gpu, threads=host, enter=prepare)
    requests.put((Ask(900),), host.now_s())
    host.sleep(SECOND)
    assert seen == [("perseus-clocks", 0)]
    assert gpu.asked == ([] if fails else [900])
    assert ("device" in str(requests.error)) is fails


@dataclass
class Plan:
    """Points of a stream with what is asked for at each; moments and delays in whole milliseconds.

    Points are at even ones and what is due later at odd ones, each its own, so that no thread's wake-up
    decides who is first.
    """

    points: list[tuple[int, list[tuple[int, int | None]]]] = field(default_factory=list)

    @classmethod
    def drawn(cls, seed: int) -> "Plan":
        draw, plan, now_ms = random.Random(seed), cls(), 20
        taken: set[int] = set()
        for _ in range(draw.randint(3, 12)):
            clocks = [(0, draw.choice((800, 900, 1000, None)))] if draw.random() < 0.6 else []
            late = sorted({2 * draw.randint(0, 60) + 1 for _ in range(draw.randint(0, 3))})
            late = [ms for ms in late if now_ms + ms not in taken]
            taken |= {now_ms + ms for ms in late}
            plan.points.append((now_ms, [*clocks, *((ms, draw.choice((800, 900, 1000))) for ms in late)]))
            now_ms += 2 * draw.randint(5, 40)
        return plan

    def asks(self) -> Iterator[tuple[float, tuple[Ask, ...]]]:
        for at_ms, asked in self.points:
            if asked:
                yield 1e-3 * at_ms, tuple(Ask(clock_mhz, 1e-3 * ms) for ms, clock_mhz in asked)


Asked = tuple[list[tuple[int, int | None]], int]
"""Requests that reached a device, each with its millisecond, and the number dropped."""


def by_a_thread(plan: Plan) -> Asked:
    """The host issues all at once; the device comes by later."""
    with closing(VirtualHost()) as host:
        gpu = DatingGpu(host)
        requests = ClockThread(gpu, threads=host)
        for at_s, asks in plan.asks():
            requests.put(asks, host.now_s(), At(host, at_s))
        host.sleep(3.0 * SECOND)
        return gpu.dated, requests.counts.overtaken


def in_virtual_time(plan: Plan) -> Asked:
    clock = VirtualTime()
    gpu = DatingGpu(clock)
    requests = ClockThread(gpu, clock)
    for at_s, asks in plan.asks():
        clock.pass_to(at_s)
        requests.put(asks, at_s)
    clock.pass_s(3.0 * SECOND)
    return gpu.dated, requests.counts.overtaken


class ClaimedGpu(NullGpu):
    """Behind a guard whose time is given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.now_ms = 0.0
        self.dated: list[tuple[int, int | None]] = []

    def lock_clock(self, clock_mhz: int) -> None:
        self.dated.append((round(self.now_ms), clock_mhz))

    def reset_clock(self) -> None:
        self.dated.append((round(self.now_ms), None))


def by_a_guard(plan: Plan, folder: Path) -> Asked:
    """The guard learns of every point a little after the device was there, and makes each request itself."""
    gpu = ClaimedGpu()
    claim = GpuClaim(gpu, "job", patience_s=0.0)
    writer = ClockWriter(claim, lease_s=600.0, warn=lambda *_: None, now_s=lambda: 1e-3 * gpu.now_ms)
    number = 0
    for at_s, asks in [*plan.asks(), (3.0, ())]:
        heard_ms = 1e3 * at_s + 0.2
        while (due_s := writer.due_s()) is not None and 1e3 * due_s <= heard_ms:
            gpu.now_ms = max(gpu.now_ms, 1e3 * due_s)
            writer.step()
        gpu.now_ms = heard_ms
        for ask in asks:
            number += 1
            writer.request(number, ask.clock_mhz, at_s + ask.delay_s)
        writer.step()
    dated, dropped = list(gpu.dated), writer.counts.overtaken
    writer.release()
    return dated, dropped


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [range(first, first + 50) for first in range(0, 200, 50)], ids=str)
def test_a_thread_a_guard_and_virtual_time_ask_alike(
    seeds: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The asked times of 200 random plans agree within a millisecond, and the same requests are dropped."""
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path))
    gave_way = 0
    for seed in seeds:
        plan = Plan.drawn(seed)
        expected = in_virtual_time(plan)
        assert by_a_thread(plan) == expected
        assert by_a_guard(plan, tmp_path) == expected
        gave_way += sum(len(asks) for _, asks in plan.asks()) - len(expected[0])
    assert gave_way, "no request of these plans gives way to another"


@pytest.mark.parametrize("error", [DeviceLostError("gone"), OSError("pipe broke")])
def test_the_first_error_is_kept_and_nothing_is_asked_after_it(
    gpu: NotingGpu, requests: ClockThread, error: Exception
) -> None:
    gpu.fails = error
    requests.put(*at(900))
    assert gpu.failed.wait(10.0)
    gpu.fails = None
    requests.put(*at(800))
    requests.close()
    assert str(error) in str(requests.error)
    assert gpu.asked == []


def test_closing_restores_the_clock_and_drops_what_waits(host: VirtualHost) -> None:
    gpu = DatingGpu(host)
    requests = ClockThread(gpu, threads=host)
    requests.put((Ask(900), Ask(1000, 5.0)), host.now_s())
    host.sleep(SECOND)
    requests.close()
    host.sleep(10.0)
    assert gpu.asked == [900, None]


def test_closing_resets_nothing_that_was_never_set(gpu: NotingGpu) -> None:
    requests = ClockThread(gpu)
    requests.put(*at(None))
    requests.close()
    assert gpu.asked == []


def test_closing_after_the_device_was_lost_keeps_its_error(gpu: NotingGpu) -> None:
    requests = ClockThread(gpu)
    requests.put(*at(900))
    gpu.wait_for(1)
    gpu.fails = DeviceLostError("gone")
    requests.close()
    assert isinstance(requests.error, DeviceLostError)


class Handed:
    """A guard in a process of its own: notes when each request was handed over, and for when."""

    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self.counts = RequestCounts()
        self.handed: list[tuple[float, float]] = []

    def ask(self, requests: Sequence[DatedClock]) -> None:
        self.handed += [(self._host.now_s(), one.due_s) for one in requests]

    def close(self) -> None: ...


class HandingGpu(NotingGpu):
    def __init__(self, host: VirtualHost) -> None:
        super().__init__()
        self._handed = Handed(host)

    def dated_clocks(self) -> Handed:
        return self._handed


def test_a_guard_has_every_request_in_time_while_python_never_pauses(host: VirtualHost) -> None:
    """At most 8 ms late at 99 of 100 points, by the interpreter's switch interval; not at all for delays."""
    gpu = HandingGpu(host)
    requests = ClockThread(gpu, threads=host)
    for place in range(400):
        at_s = 0.05 * (place + 1)
        requests.put((Ask(900), Ask(1000, 0.02)), host.now_s(), At(host, at_s))
    host.python(21.0)
    late_s = sorted(max(0.0, at_s - due_s) for at_s, due_s in gpu.dated_clocks().handed)
    assert len(late_s) == 800
    assert late_s[int(0.99 * len(late_s))] <= 0.008
    assert sum(one > 0.0 for one in late_s) <= 400, "what is due later waits for nobody"


# Clocks asked for from the job's own process, where the driver does not take each of its own list.


class NoAlarm:
    """Everything is due at once."""

    def at(self, moment_s: float, act: Act) -> Act:
        raise AssertionError(f"{moment_s} s: {act}")


def asked(desk: DeskGpu, *clocks_mhz: int) -> None:
    clocks = LocalClocks(desk, NoAlarm())
    for clock_mhz in clocks_mhz:
        clocks.ask([DatedClock(desk.now_s(), clock_mhz)])


def test_the_next_higher_clock_stands_for_one_that_is_refused() -> None:
    desk = DeskGpu()
    desk.refuses_mhz = {900, 1410}
    asked(desk, 705, 900, 705, 1410)
    assert desk.calls == [705, 1200, 705, None]


def test_a_device_that_takes_no_clock_at_all_ends_the_asking() -> None:
    desk = DeskGpu()
    desk.refuses = DeviceUnsupportedError("locks no clocks")
    with pytest.raises(DeviceUnsupportedError, match="locks"):
        asked(desk, 900)
