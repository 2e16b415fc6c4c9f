"""The stopwatch of CUDA on the strict double: precise for weeks, cheap, harmless to captures."""

from collections.abc import Callable
from itertools import count
from statistics import pstdev
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import CONTEXT_BYTES, GLOBAL, RELAXED, THREAD_LOCAL, FakeCuda
from lone_job import NotingGpu
from personality_gpu import Character, PersonalityGpu
from virtual_host import VirtualHost

from perseus_ds.errors import EngineError
from perseus_ds.runtime.cuda_events import Captures, TorchCuda, relax_capture_mode
from perseus_ds.runtime.cuda_timer import CudaStopwatch, stopwatch_for
from perseus_ds.runtime.recorder import Iteration, Recorder
from perseus_ds.runtime.threads import HostThreads
from perseus_ds.schedule import Instruction, Kind, Order

ORDER = tuple(Instruction(0, kind, n) for n in range(4) for kind in (Kind.FORWARD, Kind.BACKWARD))


class Training:
    """A job whose host runs ahead of the device by up to an iteration."""

    def __init__(
        self,
        host: VirtualHost,
        *,
        device: int = 0,
        order: Order = ORDER,
        adjoining: bool = False,
        **cuda: object,
    ) -> None:
        self.host, self.order, self.cuda = host, order, FakeCuda(host, **cuda)
        self.cuda.set_device(device)
        self.stopwatch = CudaStopwatch(PersonalityGpu(host, Character()), cuda=self.cuda, threads=host)
        self.recorder = Recorder(self.stopwatch, order, adjoining=adjoining)

    def iteration(
        self, work_s: float = 0.0431, within: Callable[[int], object] = lambda _: None
    ) -> list[Iteration]:
        """``within(n)`` is what the host does in instruction n before its work."""
        self.recorder.begin()
        for n, one in enumerate(self.order):
            self.recorder.mark_start(one.kind)
            within(n)
            self.cuda.launch(work_s)
            self.recorder.mark_end()
        self.recorder.finish()
        found = self.recorder.take_passed()
        self.recorder.ours_s = self.recorder.host_s()
        return found

    def run(self, iterations: int, work_s: float = 0.0431) -> list[Iteration]:
        return [one for _ in range(iterations) for one in self.iteration(work_s)]

    def caught_up(self) -> list[Iteration]:
        """Wait for the device, and return the iterations that it has passed."""
        self.cuda.synchronize()
        return self.recorder.take_passed()


def durations(iterations: list[Iteration]) -> list[float]:
    return [interval.duration_s for one in iterations for interval in one.intervals]


@pytest.mark.thorough
def test_an_instruction_is_as_precise_after_seven_days_as_at_first(host: VirtualHost) -> None:
    training = Training(host, ppm=50.0, offset_s=3e6)
    first = durations(training.run(40))
    for _ in range(7 * 24):
        training.run(4)
        host.sleep(3600.0)
    assert host.now_s() > 7 * 86_400.0
    last = durations(training.run(40))
    assert pstdev(last) <= 1.1 * pstdev(first) + 1e-9
    assert pstdev(first) < 2e-6
    assert sum(last) / len(last) == pytest.approx(0.0431, rel=1e-4)


def test_moments_stay_where_the_host_had_them_while_clocks_drift(host: VirtualHost) -> None:
    training, worst = Training(host, ppm=50.0), []
    for _ in range(200):
        begun_s = host.now_s()
        training.iteration()
        host.sleep(60.0)
        worst += [abs(one.start_s - begun_s) for one in training.recorder.take_passed()]
    assert max(worst[5:]) < 200e-6


@pytest.mark.parametrize("ahead", [True, False])
def test_the_host_may_run_ahead_and_never_spins(host: VirtualHost, *, ahead: bool) -> None:
    training, found = Training(host), []
    begun_s = host.now_s()
    for _ in range(20):
        found += training.iteration()
        if not ahead:
            training.cuda.synchronize()
    assert [one.index for one in found] == list(range(len(found)))
    assert len(found) >= 19
    assert max(training.cuda.counts.spun_s.values(), default=0.0) <= 1e-3
    assert host.now_s() - begun_s < 20.5 * 8 * 0.0431


def test_four_events_per_instruction_are_alive_and_one_context(host: VirtualHost) -> None:
    order = tuple(Instruction(0, kind, n) for n in range(200) for kind in (Kind.FORWARD, Kind.BACKWARD))
    training = Training(host, devices=2, device=1, order=order)
    training.run(10, 0.01)
    counts = training.cuda.counts
    assert counts.events_peak <= 4 * len(order) + 4, "and the ends of two iterations"
    assert counts.events_made == counts.events_peak, "the pool is used again"
    assert [gpu.context_bytes for gpu in training.cuda.devices] == [0, CONTEXT_BYTES]


@pytest.mark.parametrize("adjoining", [False, True])
def test_one_mark_is_enough_between_adjoining_instructions(host: VirtualHost, *, adjoining: bool) -> None:
    training = Training(host, ppm=50.0, adjoining=adjoining)
    found, counts = durations(training.run(40)), training.cuda.counts
    assert len(found) == 39 * len(ORDER)
    assert all(d == pytest.approx(0.0431, abs=1e-5) for d in found)
    per_iteration = 2 + (1 + len(ORDER) if adjoining else 2 * len(ORDER))
    assert counts.calls["main"]["record"] == 1 + 40 * per_iteration
    assert counts.events_peak <= (2 * (len(ORDER) + 1) if adjoining else 4 * len(ORDER)) + 4


@pytest.mark.thorough
def test_an_iteration_costs_a_millisecond_and_two_microseconds_per_mark(host: VirtualHost) -> None:
    kinds = (Kind.RECV_ACTIVATION, Kind.FORWARD, Kind.SEND_ACTIVATION)
    kinds += (Kind.RECV_GRAD, Kind.BACKWARD, Kind.SEND_GRAD)
    order = tuple(Instruction(0, kind, n) for n in range(96) for kind in kinds)
    training = Training(host, costs_s={"launch": 0.0}, order=order)
    training.run(5, 0.01)
    before_s = training.cuda.counts.host_s["main"]
    training.run(10, 0.01)
    per_iteration_s = (training.cuda.counts.host_s["main"] - before_s) / 10
    assert per_iteration_s <= 1e-3 + 2e-6 * 2 * len(order)


# The device's clock steps: what lies across counts for nothing, what comes after is right.


@pytest.mark.parametrize("step_s", [60.0, 0.2, -5000.0, 1e6])
def test_a_step_between_iterations(host: VirtualHost, step_s: float) -> None:
    training = Training(host, ppm=20.0)
    found = training.run(10) + training.caught_up()
    training.cuda.devices[0].suspend(step_s)
    for _ in range(30):
        found += training.iteration() + training.caught_up()
    assert [one.index for one in found] == list(range(40))
    seen = [one for one in found if not one.void]
    assert len(seen) >= 38
    assert all(d == pytest.approx(0.0431, abs=1e-5) for d in durations(seen))
    assert all(abs(one.outside_s or 0.0) < 1e-3 for one in seen)
    assert abs(seen[-1].end_s - host.now_s()) < 1e-3


def test_a_step_within_an_iteration(host: VirtualHost) -> None:
    training = Training(host)

    def suspend(n: int) -> None:
        if n == 4:
            training.cuda.synchronize()
            training.cuda.devices[0].suspend(30.0)

    found = training.run(5) + training.iteration(within=suspend) + training.run(5) + training.caught_up()
    assert [one.index for one in found if one.void] == [5]
    assert all(d == pytest.approx(0.0431, abs=1e-5) for d in durations(found))


def test_a_reset_costs_iterations_and_not_the_job(host: VirtualHost) -> None:
    training = Training(host)
    found = training.run(5)
    training.cuda.devices[0].reset()
    found += training.run(10)
    assert [one.void for one in found][-5:] == [False] * 5
    assert 1 <= sum(one.void for one in found) <= 4
    assert "destroyed" in training.stopwatch.trouble()
    assert training.stopwatch.trouble() == "", "said once"


def test_without_memory_for_events_iterations_count_for_nothing(host: VirtualHost) -> None:
    training = Training(host)
    gpu = training.cuda.devices[0]
    gpu.out_of_memory = True
    found = training.run(3)
    gpu.out_of_memory = False
    found += training.run(5)
    assert [one.void for one in found] == [True, True, True, False, False, False, False]
    assert "memory" in training.stopwatch.trouble()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("hip", [False, True])
def test_a_thousand_captures_are_unharmed(host: VirtualHost, mode: int, *, hip: bool) -> None:
    training, places = Training(host, hip=hip), count()
    cuda, moments, waited, graphs = training.cuda, host.queue(), [], []

    def waiting() -> None:
        training.stopwatch.enter_thread()
        while (moment := moments.get()) is not None:
            waited.append(moment())

    def capture(n: int) -> None:
        moments.put(training.stopwatch.moment())
        if next(places) % 3:
            return
        with cuda.graph(mode) as graph:
            cuda.launch(0.001)
            host.python(0.002)
            if n % 2:  # somebody else's marks fall into it
                training.stopwatch.mark()
        graph.replay()
        graphs.append(graph)

    host.start(waiting, name="perseus-clocks")
    while len(graphs) < 1000:
        training.iteration(0.004, within=capture)
    assert cuda.counts.broken == 0
    if hip:
        assert not cuda.counts.in_capture
    assert len(waited) > 2500


def test_calls_of_ours_break_no_capture_and_the_hosts_own_mode_comes_back(host: VirtualHost) -> None:
    training = Training(host)
    cuda = training.cuda
    cuda.exchange_capture_mode(THREAD_LOCAL)
    with relax_capture_mode(cuda):
        assert cuda.exchange_capture_mode(RELAXED) == RELAXED
    assert cuda.exchange_capture_mode(GLOBAL) == THREAD_LOCAL
    training.stopwatch.enter_thread()
    assert cuda.exchange_capture_mode(GLOBAL) == RELAXED


def test_an_iteration_with_a_capture_counts_for_nothing_and_replays_are_measured(host: VirtualHost) -> None:
    training = Training(host, order=ORDER[:1])
    cuda, graphs = training.cuda, []

    def replay(_: int) -> None:
        if not graphs:
            with cuda.graph() as graph:
                for _ in range(10):
                    cuda.launch(0.01)
            graphs.append(graph)
        graphs[0].replay()

    found = [one for _ in range(6) for one in training.iteration(0.0, within=replay)]
    assert [one.void for one in found] == [True, False, False, False, False]
    assert durations(found) == [pytest.approx(0.1, abs=1e-5)] * 4


def test_an_iteration_replayed_as_a_whole_is_refused_by_name(host: VirtualHost) -> None:
    training = Training(host)
    training.run(3)
    with training.cuda.graph() as graph:
        training.cuda.launch(0.1)
    training.recorder.begin()
    graph.replay()
    with pytest.raises(EngineError, match="CUDA graph"):
        training.recorder.finish()


def test_a_moment_is_when_the_device_was_there_however_late_one_wakes(host: VirtualHost) -> None:
    training = Training(host, ppm=50.0)
    training.run(20)
    told = []

    def waiting() -> None:
        training.stopwatch.enter_thread()
        at_s = moment()
        told.append((at_s, host.now_s()))

    training.cuda.synchronize()
    begun_s = host.now_s()
    training.cuda.launch(0.2)
    training.stopwatch.mark()
    moment = training.stopwatch.moment()
    host.start(waiting, name="perseus-clocks")
    host.python(0.5)
    ((at_s, woke_s),) = told
    assert at_s == pytest.approx(begun_s + 0.2, abs=200e-6)
    assert woke_s > at_s + 0.004


def test_many_at_one_point_and_a_late_waiter_share_its_event(host: VirtualHost) -> None:
    """The event is not recorded anew while somebody has still to wake, however often marks are taken."""
    training = Training(host)
    cuda = training.cuda
    training.run(5)
    cuda.synchronize()
    begun_s = host.now_s()
    cuda.launch(0.05)
    training.stopwatch.mark()
    moments = [training.stopwatch.moment() for _ in range(3)]
    made = cuda.counts.events_made
    training.run(20)
    cuda.synchronize()
    assert [one() for one in moments] == [pytest.approx(begun_s + 0.05, abs=200e-6)] * 3
    assert cuda.counts.events_made <= made + 4 * len(ORDER)


def test_a_moment_that_was_read_is_known_without_a_wait(host: VirtualHost) -> None:
    training = Training(host)
    training.run(5)
    training.recorder.finish()
    end_s = host.now_s() + 8 * 0.0431
    (*_, last) = training.caught_up()
    calls = training.cuda.counts.calls["main"]
    before = calls.total()
    moment = training.stopwatch.moment()
    assert calls.total() - before <= 1
    assert moment() == pytest.approx(last.end_s, abs=1e-9)
    assert last.end_s < end_s


def test_a_moment_that_is_lost_never_comes(host: VirtualHost) -> None:
    training = Training(host)
    with training.cuda.graph():
        training.stopwatch.mark()
        moment = training.stopwatch.moment()
    assert moment() == float("inf")


@pytest.mark.parametrize("kind", ["xpu", "npu", "mps", "meta", "hpu"])
def test_devices_that_nobody_can_time_are_refused(kind: str) -> None:
    with pytest.raises(EngineError, match=kind):
        stopwatch_for(NotingGpu(), device_type=kind)


# The real seam on a machine without a GPU: torch has the names, and its classes get theirs back.


def test_torchs_class_of_graphs_is_watched_and_given_back() -> None:
    kind = torch.cuda.CUDAGraph
    own = kind.capture_begin, kind.capture_end
    first, second = (Captures(SimpleNamespace(graph_type=kind), HostThreads()) for _ in range(2))
    assert kind.capture_begin is not own[0]
    for captures in (second, first):
        captures.remove()
        captures.remove()
    assert (kind.capture_begin, kind.capture_end) == own


def test_a_capture_that_does_not_begin_is_not_under_way() -> None:
    class Graph:
        def capture_begin(self) -> None:
            raise RuntimeError("out of memory")

        def capture_end(self) -> None:
            raise RuntimeError("broken")

    captures = Captures(SimpleNamespace(graph_type=Graph), HostThreads())
    for act in (Graph().capture_begin, Graph().capture_end):
        with pytest.raises(RuntimeError):
            act()
        assert captures.under_way == 0
    assert captures.begun == 1


def test_without_a_runtime_library_no_mode_is_exchanged_and_nothing_raises() -> None:
    cuda = TorchCuda()
    with relax_capture_mode(cuda):
        assert cuda.exchange_capture_mode(RELAXED) == -1


@pytest.mark.parametrize("name", ["set_device", "current_device", "is_current_stream_capturing", "Event"])
def test_torch_has_every_name_that_we_call(name: str) -> None:
    assert callable(getattr(torch.cuda, name))
