"""How an engine without a pipeline comes to us: when it is built, or when somebody hands it over."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from perseus_ds.adapters.deepspeed_engine.facts import asked, is_pipeline
from perseus_ds.adapters.replacing import after_building, before_first, take_back

if TYPE_CHECKING:  # every DeepSpeed job passes here: those without us import nothing more
    from perseus_ds.adapters.zero.orders import FirstIteration
    from perseus_ds.adapters.zero.seam import Engine


def watch(module: ModuleType) -> None:
    """Look at every DeepSpeedEngine after it is built; those with a pipeline have a door of their own."""
    after_building(module.DeepSpeedEngine, lambda engine: None if is_pipeline(engine) else attach(engine))


def serves(host: object) -> bool:
    """Whether this is an engine of DeepSpeed's without a pipeline."""
    return any(kind.__name__ == "DeepSpeedEngine" for kind in type(host).__mro__) and not is_pipeline(host)


def attach(engine: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve this engine from its second training iteration on, if it is asked for.

    The first one shows the order that the user's loop runs in. Calling it again does nothing. What goes wrong
    is one line in the log and training at default clocks, unless the block has ``"on_error": "raise"``.
    """
    wanted = asked(engine, config)
    if wanted is None or "forward" in vars(engine):
        return
    from perseus_ds.adapters.zero.hooks import Hooks  # noqa: PLC0415  # heavy, and now needed
    from perseus_ds.adapters.zero.orders import FirstIteration  # noqa: PLC0415
    from perseus_ds.adapters.zero.seam import check  # noqa: PLC0415
    from perseus_ds.runtime.startup.activation import decline, say  # noqa: PLC0415

    if wanted.tunes_itself:
        say("off: autotuning measures the job itself")
        return
    try:
        found = check(engine)
        first = FirstIteration()
        hooks = Hooks(found, first)
        hooks.install()
    except Exception as error:  # noqa: BLE001  # the host wins
        decline(error, wanted.block)
        return

    def begin(*_: object, **__: object) -> bool:
        if not (first.ended and found.training):
            return False
        hooks.remove()
        _activate(found, first, wanted.block)
        return True

    before_first(engine, "forward", begin)


def detach(engine: object) -> None:
    """Give the engine its own methods and the GPU its own clocks back; collective in effect, not in kind."""
    from perseus_ds.runtime.startup.activation import deactivate  # noqa: PLC0415

    deactivate(engine)
    take_back(engine)


def _activate(engine: Engine, first: FirstIteration, block: object) -> None:
    from perseus_ds.adapters.zero.adapter import ZeroAdapter  # noqa: PLC0415
    from perseus_ds.adapters.zero.orders import order_of  # noqa: PLC0415
    from perseus_ds.runtime.startup.activation import activate  # noqa: PLC0415

    activate(engine, lambda: ZeroAdapter(engine, order_of(first.kinds)), block=block)
