"""Requests reach the device in stream order and at their moments, and the clock is given back."""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hosts import eventually
from lone_job import DeskGpu, NotingGpu
from virtual_host import VirtualHost, closing

from perseus_ds.device.clock_agenda import LATE_S, DatedClock, RequestCounts
from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.errors import DeviceLostError, DeviceUnsupportedError
from perseus_ds.guard.claim import GpuClaim
from perseus_ds.guard.writer import ClockWriter
from perseus_ds.runtime.clocks import Ask, ClockThread, LocalClocks

SECOND = 1.0


class DatingGpu(NotingGpu):
    """Notes when every clock was asked for; each call takes ``call_s``."""

    def __init__(self, host: VirtualHost | VirtualTime, *calls_s: float) -> None:
        super().__init__()
        self._host = host
        self._calls_s = list(calls_s)
        self.dated: list[tuple[int, int | None]] = []

    def now_s(self) -> float:
        return self._host.now_s()

    def achieved(self) -> Achieved:
        last_mhz = self.asked[-1] if self.asked else None
        return Achieved(last_mhz or 1000, EventReason.NONE)

    def _note(self, clock_mhz: int | None) -> None:
        self.dated.append((round(1e3 * self.now_s()), clock_mhz))
        super()._note(clock_mhz)
        if self._calls_s:
            self._host.sleep(self._calls_s.pop(0))


def thread_of(host: VirtualHost, *calls_s: float) -> tuple[DatingGpu, ClockThread]:
    gpu = DatingGpu(host, *calls_s)
    return gpu, ClockThread(gpu, threads=host)


def at(host: VirtualHost, at_s: float) -> Callable[[], float]:
    """A point that the device reaches at a moment of the host's time."""

    def reached() -> float:
        host.native(lambda: at_s)
        return at_s

    return reached


def test_asking_for_the_same_clock_costs_the_device_nothing(host: VirtualHost) -> None:
    gpu, requests = thread_of(host)
    for clock in (900, 900, 900, 800):
        requests.put((Ask(clock),), host.now_s())
    host.sleep(SECOND)
    assert requests.counts.changes == 2
    requests.close()
    host.sleep(SECOND)
    assert gpu.asked == [900, 800, None]


def test_a_delay_counts_from_when_the_device_was_there(host: VirtualHost) -> None:
    """However long the thread was busy then."""
    gpu, requests = thread_of(host, 0.040)
    requests.put((Ask(900),), host.now_s(), at(host, 0.1))
    requests.put((Ask(800, 0.05),), host.now_s(), at(host, 0.11))
    host.sleep(SECOND)
    assert gpu.dated == [(100, 900), (160, 800)]


def test_a_call_that_returns_late_is_counted_late(host: VirtualHost) -> None:
    """Lateness was once counted from the thread's own wake-up, before the device was asked."""
    _, requests = thread_of(host, *[4.0 * LATE_S] * 10)
    for place in range(10):
        requests.put((Ask((900, 800)[place % 2]),), host.now_s(), at(host, 0.1 * (place + 1)))
    host.sleep(2.0 * SECOND)
    assert (requests.counts.changes, requests.counts.late) == (10, 10)
    assert requests.counts.longest_late_s == pytest.approx(4.0 * LATE_S, abs=1e-3)


def test_a_call_that_hangs_for_half_a_minute_holds_up_no_training(host: VirtualHost) -> None:
    """Down at 0.1 s; up at 0.2 s, in a call that hangs; all else is asked for when it returns."""
    gpu, requests = thread_of(host, 0.01, 30.0)
    for place, clock_mhz in enumerate((800, 1000, 900, 1000, 800), start=1):
        requests.put((Ask(clock_mhz),), host.now_s(), at(host, 0.1 * place))
    assert host.now_s() < 0.1
    host.sleep(31.0)
    assert gpu.asked == [800, 1000, 900, 1000, 800]
    assert host.now_s() < 40.0


def test_who_closes_while_a_call_hangs_waits_for_a_moment_alone(host: VirtualHost) -> None:
    """The clock is given back when the call returns."""
    gpu, requests = thread_of(host, 30.0)
    requests.put((Ask(800),), host.now_s(), at(host, 0.1))
    host.sleep(0.2)
    began_s = host.now_s()
    requests.close()
    assert host.now_s() - began_s < 2.1
    host.sleep(40.0)
    assert gpu.asked == [800, None]


def test_a_busy_interpreter_makes_no_delayed_request_late_twice(host: VirtualHost) -> None:
    """Python that never lets go costs one switch interval at the point, and none for what comes after."""
    gpu, requests = thread_of(host)
    requests.put((Ask(900), Ask(800, 0.1)), host.now_s(), at(host, 0.05))
    host.python(0.5)
    (first_ms, _), (second_ms, _) = gpu.dated
    assert first_ms <= 50 + 2e3 * host.switch_s
    assert second_ms <= 150 + 2e3 * host.switch_s


def test_a_moment_that_never_comes_is_dropped_alone(host: VirtualHost) -> None:
    gpu, requests = thread_of(host)
    for clock_mhz, moment in ((900, at(host, 0.1)), (800, lambda: math.inf), (1000, at(host, 0.3))):
        requests.put((Ask(clock_mhz),), host.now_s(), moment)
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


Plan = list[tuple[float, tuple[Ask, ...]]]
"""Points of a stream, with what is asked for at each."""


def drawn(seed: int) -> Plan:
    """Draw points at even milliseconds and what is due later at odd ones, each its own.

    So no thread's wake-up decides who is first.
    """
    draw, now_ms = random.Random(seed), 20
    plan: Plan = []
    taken: set[int] = set()
    for _ in range(draw.randint(3, 12)):
        asks = [Ask(draw.choice((800, 900, 1000, None)))] if draw.random() < 0.6 else []
        late = sorted({2 * draw.randint(0, 60) + 1 for _ in range(draw.randint(0, 3))})
        late = [ms for ms in late if now_ms + ms not in taken]
        taken |= {now_ms + ms for ms in late}
        asks += [Ask(draw.choice((800, 900, 1000)), 1e-3 * ms) for ms in late]
        if asks:
            plan.append((1e-3 * now_ms, tuple(asks)))
        now_ms += 2 * draw.randint(5, 40)
    return plan


Asked = tuple[list[tuple[int, int | None]], int]
"""Requests that reached a device, each with its millisecond, and the number dropped."""


def by_a_thread(plan: Plan) -> Asked:
    """The host issues all at once; the device comes by later."""
    with closing(VirtualHost()) as host:
        gpu, requests = thread_of(host)
        for at_s, asks in plan:
            requests.put(asks, host.now_s(), at(host, at_s))
        host.sleep(3.0 * SECOND)
        return gpu.dated, requests.counts.overtaken


def in_virtual_time(plan: Plan) -> Asked:
    clock = VirtualTime()
    gpu = DatingGpu(clock)
    requests = ClockThread(gpu, clock)
    for at_s, asks in plan:
        clock.pass_to(at_s)
        requests.put(asks, at_s)
    clock.pass_s(3.0 * SECOND)
    return gpu.dated, requests.counts.overtaken


def by_a_guard(plan: Plan) -> Asked:
    """The guard learns of every point a little after the device was there, and makes each request itself."""
    gpu = DatingGpu(clock := VirtualTime())
    claim = GpuClaim(gpu, "job", patience_s=0.0)
    writer = ClockWriter(claim, lease_s=600.0, warn=lambda *_: None, now_s=clock.now_s)
    number = 0
    for at_s, asks in [*plan, (3.0, ())]:
        heard_s = at_s + 2e-4
        while (due_s := writer.due_s()) is not None and due_s <= heard_s:
            clock.pass_to(due_s)
            writer.step()
        clock.pass_to(heard_s)
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
    for plan in map(drawn, seeds):
        expected = in_virtual_time(plan)
        assert by_a_thread(plan) == by_a_guard(plan) == expected
        gave_way += sum(len(asks) for _, asks in plan) - len(expected[0])
    assert gave_way, "no request of these plans gives way to another"


@pytest.mark.parametrize("error", [DeviceLostError("gone"), OSError("pipe broke")])
def test_nothing_is_asked_after_an_error(host: VirtualHost, error: Exception) -> None:
    gpu, requests = thread_of(host)
    for gpu.fails, clock in ((error, 900), (None, 800)):
        requests.put((Ask(clock),), host.now_s())
        host.sleep(SECOND)
    requests.close()
    assert str(error) in str(requests.error)
    assert gpu.asked == []


def test_closing_restores_the_clock_and_drops_what_waits(host: VirtualHost) -> None:
    gpu, requests = thread_of(host)
    requests.put((Ask(900), Ask(1000, 5.0)), host.now_s())
    host.sleep(SECOND)
    requests.close()
    host.sleep(10.0)
    assert gpu.asked == [900, None]


def test_a_thread_of_the_interpreter_asks_in_order_and_gives_the_clock_back() -> None:
    """Everywhere else here a host in virtual time stands in its place."""
    gpu = NotingGpu()
    requests = ClockThread(gpu)
    for count, clock in enumerate((900, 800), start=1):
        requests.put((Ask(clock),), 0.0)
        assert eventually(lambda count=count: len(gpu.asked) == count)
    requests.close()
    assert gpu.asked == [900, 800, None]


def test_closing_resets_nothing_that_was_never_set(host: VirtualHost) -> None:
    gpu, requests = thread_of(host)
    requests.put((Ask(None),), host.now_s())
    requests.close()
    host.sleep(SECOND)
    assert gpu.asked == []


def test_closing_after_the_device_was_lost_keeps_its_error(host: VirtualHost) -> None:
    gpu, requests = thread_of(host)
    requests.put((Ask(900),), host.now_s())
    host.sleep(SECOND)
    gpu.fails = DeviceLostError("gone")
    requests.close()
    assert isinstance(requests.error, DeviceLostError)


class HandingGpu(NotingGpu):
    """Its guard, in a process of its own, notes when each request was handed over, and for when."""

    def __init__(self, host: VirtualHost) -> None:
        super().__init__()
        self._host = host
        self.counts = RequestCounts()
        self.handed: list[tuple[float, float]] = []

    def dated_clocks(self) -> "HandingGpu":
        return self

    def ask(self, requests: Sequence[DatedClock]) -> None:
        self.handed += [(self._host.now_s(), one.due_s) for one in requests]


def test_a_guard_has_every_request_in_time_while_python_never_pauses(host: VirtualHost) -> None:
    """At most 8 ms late at 99 of 100 points, by the interpreter's switch interval; not at all for delays."""
    gpu = HandingGpu(host)
    requests = ClockThread(gpu, threads=host)
    for place in range(400):
        requests.put((Ask(900), Ask(1000, 0.02)), host.now_s(), at(host, 0.05 * (place + 1)))
    host.python(21.0)
    late_s = sorted(max(0.0, at_s - due_s) for at_s, due_s in gpu.handed)
    assert len(late_s) == 800
    assert late_s[int(0.99 * len(late_s))] <= 0.008
    assert sum(one > 0.0 for one in late_s) <= 400, "what is due later waits for nobody"


# Clocks asked for from the job's own process, where the driver does not take each of its own list.


def asked(desk: DeskGpu, *clocks_mhz: int) -> None:
    clocks = LocalClocks(desk, None)  # everything is due at once, and nobody is woken later
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
