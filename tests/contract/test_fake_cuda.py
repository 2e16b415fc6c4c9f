"""What the strict double of CUDA holds: each line of its contract, so that tests on it mean something."""

from collections.abc import Callable, Iterator
from queue import Empty

import pytest
from fake_cuda import CONTEXT_BYTES, GLOBAL, RELAXED, THREAD_LOCAL, CudaError, FakeCuda, FakeEvent
from virtual_host import VirtualHost, closing


@pytest.fixture
def host() -> Iterator[VirtualHost]:
    with closing(VirtualHost(wake_s=0.0)) as host:
        yield host


def marked(cuda: FakeCuda, *, timing: bool = True, blocking: bool = False) -> FakeEvent:
    event = cuda.event(timing=timing, blocking=blocking)
    event.record()
    return event


def test_a_launch_returns_at_once_and_only_blocking_events_do_not_spin(host: VirtualHost) -> None:
    cuda = FakeCuda(host)
    for blocking, spun_s in ((True, 0.0), (False, 0.1)):
        begun_s = host.now_s()
        cuda.launch(0.1)
        end = marked(cuda, blocking=blocking)
        assert host.now_s() - begun_s < 1e-3
        assert not end.query()
        end.synchronize()
        assert host.now_s() - begun_s == pytest.approx(0.1, abs=1e-4)
        assert cuda.counts.spun_s["main"] == pytest.approx(spun_s, abs=1e-3)


def test_the_devices_clock_drifts_and_long_times_come_in_coarse_steps(host: VirtualHost) -> None:
    cuda = FakeCuda(host, ppm=1000.0, offset_s=1e6)
    begin = marked(cuda)
    cuda.launch(10.0)
    end = marked(cuda)
    end.synchronize()
    assert begin.elapsed_time(end) == pytest.approx(10_010.0, abs=0.1)
    host.sleep(3 * 86_400.0)
    one = marked(cuda)
    host.sleep(1e-3)
    other = marked(cuda)
    other.synchronize()
    assert {(begin.elapsed_time(event) * 1e3) % 16_000 for event in (one, other)} == {0.0}
    cuda.devices[0].suspend(60.0)
    assert one.elapsed_time(marked(cuda)) == pytest.approx(60_000.0, abs=20.0)


def test_durations_follow_the_clock_in_force_also_of_what_runs(host: VirtualHost) -> None:
    cuda = FakeCuda(host, full_mhz=1000)
    cuda.launch(1.0)
    end = marked(cuda, blocking=True)
    host.sleep(0.5)
    cuda.devices[0].set_clock(500)
    end.synchronize()
    assert host.now_s() == pytest.approx(1.5, abs=1e-4)


def test_a_full_launch_queue_blocks_with_the_gil_released(host: VirtualHost) -> None:
    cuda, ran = FakeCuda(host, queue=4), []
    host.start(lambda: (host.sleep(0.01), ran.append(host.now_s())), name="other")
    for _ in range(5):
        cuda.launch(0.1)
    assert host.now_s() == pytest.approx(0.1, abs=1e-3)
    assert ran[0] == pytest.approx(0.01, abs=1e-3)


def test_an_event_tells_a_time_only_with_timing_and_once_it_is_reached(host: VirtualHost) -> None:
    cuda = FakeCuda(host)
    begin, untimed = marked(cuda), marked(cuda, timing=False)
    host.sleep(0.1)
    with pytest.raises(ValueError, match="enable_timing"):
        begin.elapsed_time(untimed)
    cuda.launch(0.1)
    with pytest.raises(CudaError, match="not ready"):
        begin.elapsed_time(marked(cuda))


def test_a_query_behind_a_device_wait_keeps_the_gil_and_a_wait_does_not(host: VirtualHost) -> None:
    cuda, ticks = FakeCuda(host), []
    event = marked(cuda)

    def ticking() -> None:
        while True:
            host.sleep(0.01)
            ticks.append(host.now_s())

    def synchronizing() -> None:
        cuda.launch(1.0)
        cuda.synchronize()

    host.start(ticking, name="ticking")
    cuda.launch(0.5)
    marked(cuda, blocking=True).synchronize()
    assert len(ticks) > 40
    host.start(synchronizing, name="synchronizing")
    host.sleep(0.1)
    before = len(ticks)
    event.query()
    assert len(ticks) == before
    assert cuda.counts.held_s > 0.5


def test_who_wakes_waits_for_the_switch_interval_of_who_runs_python(host: VirtualHost) -> None:
    woken = []
    host.start(lambda: (host.sleep(0.01), woken.append(host.now_s())), name="sleeper")
    host.python(1.0)
    assert woken == [pytest.approx(0.005 + 0.01 + 0.005, abs=1e-6)]  # to begin, asleep, to go on
    assert host.now_s() == pytest.approx(1.0, abs=1e-6)


def test_a_thread_that_chose_no_device_makes_a_context_on_the_first(host: VirtualHost) -> None:
    cuda = FakeCuda(host, devices=2)
    cuda.set_device(1)
    marked(cuda)
    assert [gpu.context_bytes for gpu in cuda.devices] == [0, CONTEXT_BYTES]
    host.start(lambda: cuda.exchange_capture_mode(RELAXED), name="careless")
    host.sleep(0.1)
    assert cuda.devices[0].context_bytes == CONTEXT_BYTES


def test_queues_pass_virtual_time_and_a_deadlock_is_said(host: VirtualHost) -> None:
    queue = host.queue()
    host.start(lambda: (host.sleep(2.0), queue.put("late")), name="putter")
    with pytest.raises(Empty):
        queue.get(timeout=1.0)
    assert queue.get() == "late"
    assert host.now_s() == pytest.approx(2.0)
    with pytest.raises(RuntimeError, match="nothing"):
        host.queue().get()


@pytest.mark.parametrize(
    ("capture", "thread", "hip", "breaks"),
    [
        (GLOBAL, GLOBAL, False, True),
        (GLOBAL, THREAD_LOCAL, False, False),
        (GLOBAL, RELAXED, False, False),
        (THREAD_LOCAL, GLOBAL, False, False),
        (RELAXED, GLOBAL, False, False),
        (GLOBAL, RELAXED, True, True),
        (THREAD_LOCAL, RELAXED, True, True),
    ],
)
@pytest.mark.parametrize("call", ["query", "synchronize", "event"])
def test_what_a_call_of_another_thread_does_to_a_capture_depends_on_both_modes(
    host: VirtualHost, capture: int, thread: int, call: str, *, hip: bool, breaks: bool
) -> None:
    """On HIP no mode protects."""
    cuda, seen = FakeCuda(host, hip=hip), []
    event = marked(cuda)

    def other() -> None:
        cuda.exchange_capture_mode(thread)
        try:
            cuda.event() if call == "event" else getattr(event, call)()
        except CudaError as error:
            seen.append(error)

    def captured() -> None:
        with cuda.graph(capture):
            cuda.launch(0.1)
            host.start(other, name="other")
            host.sleep(0.01)

    if breaks:
        with pytest.raises(CudaError, match="during capture"):
            captured()
    else:
        captured()
    assert cuda.counts.broken == breaks
    assert bool(seen) is (breaks and not hip)


def test_an_event_recorded_while_capturing_raises_for_ever_and_a_replay_is_one_operation(
    host: VirtualHost,
) -> None:
    cuda = FakeCuda(host)
    event = cuda.event(timing=True)
    with cuda.graph() as graph:
        assert cuda.capturing()
        event.record()
        cuda.launch(0.1)
        cuda.launch(0.2)
    for _ in range(2):
        with pytest.raises(CudaError, match="capturing"):
            event.query()
    begin = marked(cuda)
    graph.replay()
    end = marked(cuda, blocking=True)
    end.synchronize()
    assert begin.elapsed_time(end) == pytest.approx(300.0, abs=0.1)
    event.record()
    assert event.query()


def break_for_good(cuda: FakeCuda) -> None:
    cuda.break_with("an illegal memory access was encountered")


@pytest.mark.parametrize(
    ("trouble", "words"),
    [(break_for_good, "illegal"), (lambda cuda: cuda.devices[0].reset(), "destroyed")],
    ids=["an error that sticks", "a reset"],
)
def test_events_of_before_a_trouble_are_worth_nothing(
    host: VirtualHost, trouble: Callable[[FakeCuda], None], words: str
) -> None:
    cuda = FakeCuda(host)
    event = marked(cuda)
    trouble(cuda)
    for call in (event.query, event.synchronize):
        with pytest.raises(CudaError, match=words):
            call()


def test_calls_are_counted_by_thread_and_take_the_hosts_time_and_memory_runs_out(host: VirtualHost) -> None:
    cuda = FakeCuda(host)
    kept = [marked(cuda) for _ in range(100)]
    assert cuda.counts.calls["main"]["record"] == 100
    assert host.now_s() == pytest.approx(100 * 6e-6)
    assert cuda.counts.events_alive == len(kept)
    cuda.devices[0].out_of_memory = True
    with pytest.raises(CudaError, match="memory"):
        cuda.event()
