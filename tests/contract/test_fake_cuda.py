"""What the strict double of CUDA holds: each line of its contract, so that tests on it mean something."""

from collections.abc import Callable, Iterator

import pytest
from fake_cuda import GLOBAL, RELAXED, THREAD_LOCAL, CudaError, FakeCuda, FakeEvent
from virtual_host import VirtualHost, closing


@pytest.fixture
def host() -> Iterator[VirtualHost]:
    with closing(VirtualHost(wake_s=0.0)) as host:
        yield host


def marked(cuda: FakeCuda, *, timing: bool = True, blocking: bool = False) -> FakeEvent:
    event = cuda.event(timing=timing, blocking=blocking)
    event.record()
    return event


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
