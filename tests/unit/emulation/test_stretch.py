"""Real handlers stretched to a simulated GPU's time, on a stand-in for the engine."""

import threading

import pytest

from perseus_ds.device import SimulatedGpu, SimulatedSettings, Work
from perseus_ds.device.simulated import VirtualTime
from perseus_ds.emulation import emulate, stretched
from perseus_ds.errors import UnsupportedEngineError


class ForwardPass: ...


class BackwardPass: ...


class SendGrad: ...


class Engine:
    stage_id = 0

    def forward(self, buffer_id: int) -> tuple[str, int]:
        return ("forward", buffer_id)

    def other(self, buffer_id: int) -> tuple[str, int]:
        return ("other", buffer_id)

    _INSTRUCTION_MAP = {ForwardPass: forward, BackwardPass: other, SendGrad: other}  # noqa: RUF012 - as DeepSpeed


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def gpu(time: VirtualTime) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(noise=0.0), time=time)


def execute(engine: Engine, instruction: type) -> object:
    return engine._INSTRUCTION_MAP[instruction](engine, buffer_id=1)


def test_a_stretched_handler_returns_the_same_when_the_gpu_is_done(
    gpu: SimulatedGpu, time: VirtualTime
) -> None:
    assert stretched(lambda x, y: x + y, gpu, Work(0.25))(1, y=2) == 3
    assert time.now_s() == pytest.approx(0.25)


def test_a_failing_handler_fails_and_leaves_the_gpu_idle(gpu: SimulatedGpu) -> None:
    def fail() -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        stretched(fail, gpu, Work(0.25))()
    assert stretched(int, gpu, Work(0.25))() == 0


def test_forward_and_backward_last_as_set_and_the_rest_is_untouched(
    gpu: SimulatedGpu, time: VirtualTime
) -> None:
    engine = Engine()
    emulate(engine, gpu, SimulatedSettings())
    assert execute(engine, ForwardPass) == ("forward", 1)
    assert time.now_s() == pytest.approx(0.4)
    execute(engine, BackwardPass)
    assert time.now_s() == pytest.approx(1.2)
    assert engine._INSTRUCTION_MAP[SendGrad] is Engine._INSTRUCTION_MAP[SendGrad]


def test_undo_leaves_no_trace(gpu: SimulatedGpu) -> None:
    engine, untouched = Engine(), dict(Engine._INSTRUCTION_MAP)
    emulate(engine, gpu, SimulatedSettings())()
    assert vars(engine) == {}
    assert untouched == Engine._INSTRUCTION_MAP


def test_handlers_already_there_are_kept_and_given_back(gpu: SimulatedGpu, time: VirtualTime) -> None:
    engine = Engine()
    mine = {**Engine._INSTRUCTION_MAP, ForwardPass: lambda engine, buffer_id: "mine"}
    engine._INSTRUCTION_MAP = mine
    undo = emulate(engine, gpu, SimulatedSettings())
    assert execute(engine, ForwardPass) == "mine"
    assert time.now_s() > 0
    undo()
    assert engine._INSTRUCTION_MAP is mine


def test_undo_under_a_later_wrapper_only_stops_stretching(gpu: SimulatedGpu, time: VirtualTime) -> None:
    engine = Engine()
    undo = emulate(engine, gpu, SimulatedSettings())
    later = dict(engine._INSTRUCTION_MAP)
    engine._INSTRUCTION_MAP = later
    undo()
    assert engine._INSTRUCTION_MAP is later
    assert execute(engine, ForwardPass) == ("forward", 1)
    assert time.now_s() == 0.0


def test_an_engine_without_forward_is_refused(gpu: SimulatedGpu) -> None:
    engine = Engine()
    engine._INSTRUCTION_MAP = {}
    with pytest.raises(UnsupportedEngineError, match="no ForwardPass"):
        emulate(engine, gpu, SimulatedSettings())


def test_a_waiting_instruction_follows_a_change_from_another_thread() -> None:
    gpu = SimulatedGpu(SimulatedSettings(noise=0.0, time_scale=0.05, switch_latency_s=0.0))
    task = gpu.begin(Work(4.0, memory_bound=0.0))
    gpu.release(task)
    waiting = threading.Thread(target=gpu.wait, args=(task,))
    waiting.start()
    gpu.lock_clock(705)
    waiting.join()
    assert task.ended_s - task.started_s > 5.0
