"""What the strict double of CUDA holds: each line of its contract, so that tests on it mean something."""

import gc
from collections.abc import Iterator
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


class TestTime:
    def test_a_launch_returns_at_once_and_the_device_runs_later(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        cuda.launch(0.1)
        end = marked(cuda)
        assert host.now_s() < 1e-3
        assert not end.query()
        end.synchronize()
        assert host.now_s() == pytest.approx(0.1, abs=1e-4)

    def test_two_streams_run_side_by_side_and_one_can_wait_for_the_other(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        cuda.launch(0.1)
        first = marked(cuda)
        with cuda.stream():
            cuda.launch(0.05)
            free = marked(cuda, blocking=True)
            cuda.wait(first)
            cuda.launch(0.05)
            bound = marked(cuda, blocking=True)
        free.synchronize()
        assert host.now_s() == pytest.approx(0.05, abs=1e-4)
        bound.synchronize()
        assert host.now_s() == pytest.approx(0.15, abs=1e-4)

    def test_the_devices_clock_drifts_and_times_come_in_half_microseconds(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host, ppm=1000.0, offset_s=1e6)
        begin = marked(cuda)
        cuda.launch(10.0)
        end = marked(cuda)
        end.synchronize()
        assert begin.elapsed_time(end) == pytest.approx(10_010.0, abs=0.1)
        short = marked(cuda)
        cuda.launch(1.3e-6)
        later = marked(cuda)
        later.synchronize()
        steps = short.elapsed_time(later) / 0.5e-3
        assert steps == pytest.approx(round(steps), abs=1e-4)
        assert round(steps) > 0

    def test_elapsed_times_of_days_have_steps_of_milliseconds(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        begin = marked(cuda)
        host.sleep(3 * 86_400.0)
        one = marked(cuda)
        host.sleep(1e-3)
        other = marked(cuda)
        other.synchronize()
        assert {(begin.elapsed_time(event) * 1e3) % 16_000 for event in (one, other)} == {0.0}

    def test_durations_follow_the_clock_in_force_also_of_what_runs(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host, full_mhz=1000)
        cuda.launch(1.0)
        end = marked(cuda, blocking=True)
        host.sleep(0.5)
        cuda.devices[0].set_clock(500)
        end.synchronize()
        assert host.now_s() == pytest.approx(1.5, abs=1e-4)

    def test_a_full_launch_queue_blocks_with_the_gil_released(self, host: VirtualHost) -> None:
        cuda, ran = FakeCuda(host, queue=4), []
        host.start(lambda: (host.sleep(0.01), ran.append(host.now_s())), name="other")
        for _ in range(5):
            cuda.launch(0.1)
        assert host.now_s() == pytest.approx(0.1, abs=1e-3)
        assert ran[0] == pytest.approx(0.01, abs=1e-3)

    def test_a_collective_ends_when_all_have_come(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        reduction = cuda.collective(0.01)
        end = marked(cuda, blocking=True)
        host.sleep(1.0)
        assert not end.query()
        cuda.join(reduction)
        end.synchronize()
        assert host.now_s() == pytest.approx(1.01, abs=1e-3)

    def test_a_callback_comes_when_the_stream_is_there(self, host: VirtualHost) -> None:
        cuda, came = FakeCuda(host), []
        cuda.launch(0.2)
        cuda.callback(lambda: came.append(host.now_s()))
        host.sleep(1.0)
        assert came == [pytest.approx(0.2, abs=1e-3)]


class TestEvents:
    def test_one_without_timing_tells_none(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        events = marked(cuda), marked(cuda, timing=False)
        host.sleep(0.1)
        with pytest.raises(ValueError, match="enable_timing"):
            events[0].elapsed_time(events[1])

    def test_one_that_is_not_reached_tells_no_time(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        begin = marked(cuda)
        cuda.launch(0.1)
        with pytest.raises(CudaError, match="not ready"):
            begin.elapsed_time(marked(cuda))

    def test_only_blocking_ones_do_not_spin(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        for blocking, spun_s in ((True, 0.0), (False, 0.1)):
            cuda.launch(0.1)
            marked(cuda, blocking=blocking).synchronize()
            assert cuda.counts.spun_s["main"] == pytest.approx(spun_s, abs=1e-3)

    def test_those_alive_are_counted(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        kept = [marked(cuda) for _ in range(3)]
        assert cuda.counts.events_alive == 3
        del kept
        gc.collect()
        assert (cuda.counts.events_alive, cuda.counts.events_peak) == (0, 3)


class TestThreads:
    def test_a_query_behind_a_device_wait_keeps_the_gil_and_a_wait_does_not(self, host: VirtualHost) -> None:
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
        marked(cuda).synchronize()
        cuda.launch(0.5)
        marked(cuda, blocking=True).synchronize()
        assert len(ticks) > 40
        host.start(synchronizing, name="synchronizing")
        host.sleep(0.1)
        before = len(ticks)
        event.query()
        assert len(ticks) == before
        assert cuda.counts.held_s > 0.5

    def test_who_wakes_waits_for_the_switch_interval_of_who_runs_python(self, host: VirtualHost) -> None:
        woken = []
        host.start(lambda: (host.sleep(0.01), woken.append(host.now_s())), name="sleeper")
        host.python(1.0)
        assert woken == [pytest.approx(0.005 + 0.01 + 0.005, abs=1e-6)]  # to begin, asleep, to go on
        assert host.now_s() == pytest.approx(1.0, abs=1e-6)

    def test_a_thread_that_chose_no_device_makes_a_context_on_the_first(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host, devices=2)
        cuda.set_device(1)
        marked(cuda)
        assert [gpu.context_bytes for gpu in cuda.devices] == [0, CONTEXT_BYTES]
        host.start(lambda: cuda.exchange_capture_mode(RELAXED), name="careless")
        host.sleep(0.1)
        assert cuda.devices[0].context_bytes == CONTEXT_BYTES

    def test_queues_and_joins_pass_virtual_time(self, host: VirtualHost) -> None:
        queue = host.queue()
        host.start(lambda: (host.sleep(2.0), queue.put("late")), name="putter")
        with pytest.raises(Empty):
            queue.get(timeout=1.0)
        assert queue.get() == "late"
        assert host.now_s() == pytest.approx(2.0)

    def test_a_deadlock_is_said(self, host: VirtualHost) -> None:
        with pytest.raises(RuntimeError, match="nothing"):
            host.queue().get()


class TestCaptures:
    @pytest.mark.parametrize(
        ("capture", "thread", "breaks"),
        [
            (GLOBAL, GLOBAL, True),
            (GLOBAL, THREAD_LOCAL, False),
            (GLOBAL, RELAXED, False),
            (THREAD_LOCAL, GLOBAL, False),
            (RELAXED, GLOBAL, False),
        ],
    )
    @pytest.mark.parametrize("call", ["query", "synchronize", "event"])
    def test_what_a_call_of_another_thread_does_depends_on_both_modes(
        self, host: VirtualHost, capture: int, thread: int, call: str, *, breaks: bool
    ) -> None:
        cuda, seen = FakeCuda(host), []
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
        assert bool(seen) is breaks is (cuda.counts.broken == 1)

    @pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL])
    def test_on_hip_no_mode_protects(self, host: VirtualHost, mode: int) -> None:
        cuda = FakeCuda(host, hip=True)
        event = marked(cuda)

        def other() -> None:
            cuda.exchange_capture_mode(RELAXED)
            event.query()

        def captured() -> None:
            with cuda.graph(mode):
                host.start(other, name="other")
                host.sleep(0.01)

        with pytest.raises(CudaError, match="during capture"):
            captured()

    def test_an_event_recorded_while_capturing_raises_for_ever(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        event = cuda.event(timing=True)
        with cuda.graph():
            event.record()
        for _ in range(2):
            with pytest.raises(CudaError, match="capturing"):
                event.query()
        event.record()
        assert event.query()

    def test_a_replay_is_one_operation_of_what_was_captured(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        with cuda.graph() as graph:
            assert cuda.capturing()
            cuda.launch(0.1)
            cuda.launch(0.2)
        begin = marked(cuda)
        graph.replay()
        end = marked(cuda, blocking=True)
        end.synchronize()
        assert begin.elapsed_time(end) == pytest.approx(300.0, abs=0.1)


class TestTrouble:
    def test_errors_stick(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        event = marked(cuda)
        cuda.break_with("an illegal memory access was encountered")
        for call in (event.query, event.synchronize, cuda.event, lambda: cuda.launch(1.0)):
            with pytest.raises(CudaError, match="illegal"):
                call()

    def test_memory_runs_out_when_an_event_is_made(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        cuda.devices[0].out_of_memory = True
        with pytest.raises(CudaError, match="memory"):
            cuda.event()

    def test_events_of_before_a_reset_are_worth_nothing(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        event = marked(cuda)
        cuda.devices[0].reset()
        with pytest.raises(CudaError, match="destroyed"):
            event.query()
        marked(cuda).query()

    def test_a_suspended_host_misses_what_the_device_counts(self, host: VirtualHost) -> None:
        cuda = FakeCuda(host)
        begin = marked(cuda)
        host.sleep(0.1)
        cuda.devices[0].suspend(60.0)
        end = marked(cuda)
        host.sleep(0.1)
        assert begin.elapsed_time(end) == pytest.approx(60_100.0, abs=0.1)


def test_calls_are_counted_by_thread_and_take_the_hosts_time(host: VirtualHost) -> None:
    cuda = FakeCuda(host)
    for _ in range(100):
        marked(cuda)
    assert cuda.counts.calls["main"]["record"] == 100
    assert host.now_s() == pytest.approx(100 * 6e-6)
