"""Put stretched handlers into one pipeline engine, and take them out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perseus_ds.device.simulated import SimulatedGpu, SimulatedSettings
from perseus_ds.emulation.stage_work import work_of_stage
from perseus_ds.emulation.stretch import stretched
from perseus_ds.errors import UnsupportedEngineError

Handler = Callable[..., object]
T = TypeVar("T")

_MAP = "_INSTRUCTION_MAP"


def emulate(
    engine: object, gpu: SimulatedGpu, settings: SimulatedSettings, *, mean_weight: float | None = None
) -> Callable[[], None]:
    """Stretch this engine's forwards and backwards on ``gpu``; return what undoes it.

    Only the instance is touched: a copy of its instruction map with two entries replaced, around whatever
    handlers stand there. Undo in reverse order of installation leaves no trace; when somebody has wrapped
    our handlers meanwhile, undo turns them into plain passages instead.

    Raises:
        UnsupportedEngineError: the engine's map has no ForwardPass or BackwardPass.
    """
    before = getattr(engine, _MAP, {})
    own = _MAP in vars(engine)
    amounts = work_of_stage(engine, settings, mean_weight=mean_weight)
    live = [True]
    after = dict(before)
    for name, amount in (("ForwardPass", amounts.forward), ("BackwardPass", amounts.backward)):
        instruction = _named(before, name)
        plain = before[instruction]
        after[instruction] = _while(live, stretched(plain, gpu, amount), plain)
    setattr(engine, _MAP, after)

    def undo() -> None:
        live.clear()
        if vars(engine).get(_MAP) is not after:
            return
        if own:
            setattr(engine, _MAP, before)
        else:
            delattr(engine, _MAP)

    return undo


def _while(live: list[bool], wrapped: Handler, plain: Handler) -> Handler:
    def run(*args: object, **kwargs: object) -> object:
        return wrapped(*args, **kwargs) if live else plain(*args, **kwargs)

    return run


def _named(instructions: dict[type, Handler], name: str) -> type:
    for instruction in instructions:
        if instruction.__name__ == name:
            return instruction
    raise UnsupportedEngineError(
        f"the engine's instruction map has no {name}", hint="emulation needs a DeepSpeed PipelineEngine"
    )
