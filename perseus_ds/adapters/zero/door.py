"""How an engine without a pipeline comes to us: when it is built, or when somebody hands it over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakSet

from perseus_ds.adapters.deepspeed_engine.block import asked
from perseus_ds.adapters.deepspeed_engine.facts import is_pipeline

if TYPE_CHECKING:  # every DeepSpeed job passes here: those without us import nothing more
    from perseus_ds.adapters.zero.hooks import Hooks
    from perseus_ds.adapters.zero.orders import FirstIteration
    from perseus_ds.adapters.zero.seam import Engine

_watched: WeakSet[type] = WeakSet()


def watch(module: ModuleType) -> None:
    """Look at every DeepSpeedEngine after it is built; those with a pipeline have a door of their own."""
    kind = module.DeepSpeedEngine
    if kind in _watched:
        return
    _watched.add(kind)
    original = kind.__init__

    @wraps(original)
    def built(engine: object, *args: object, **kwargs: object) -> None:
        original(engine, *args, **kwargs)
        if not is_pipeline(engine):
            attach(engine)

    kind.__init__ = built


def serves(host: object) -> bool:
    """Whether this is an engine of DeepSpeed's without a pipeline."""
    return any(kind.__name__ == "DeepSpeedEngine" for kind in type(host).__mro__) and not is_pipeline(host)


def attach(engine: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve this engine from its second training iteration on, if it is asked for.

    The first one shows the order that the user's loop runs in. Calling it again does nothing. What goes wrong
    is one line in the log and training at default clocks, unless the block says ``"on_error": "raise"``.
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
    _begin_after(found, first, hooks, wanted.block)


def detach(engine: object) -> None:
    """Give the engine its own methods and the GPU its own clocks back; collective in effect, not in kind."""
    from perseus_ds.runtime.startup.activation import deactivate  # noqa: PLC0415

    deactivate(engine)
    for name in [name for name, thing in vars(engine).items() if hasattr(thing, "perseus_ds")]:
        delattr(engine, name)


def _begin_after(engine: Engine, first: FirstIteration, hooks: Hooks, block: object) -> None:
    noting = engine.forward

    @wraps(noting)
    def forward(*args: object, **kwargs: object) -> object:
        if not (first.ended and engine.training):
            return noting(*args, **kwargs)
        hooks.remove()
        _activate(engine, first, block)
        return engine.forward(*args, **kwargs)  # ours by now, or DeepSpeed's own

    forward.perseus_ds = True  # type: ignore[attr-defined]  # as all hooks of ours
    engine.forward = forward


def _activate(engine: Engine, first: FirstIteration, block: object) -> None:
    from perseus_ds.adapters.zero.adapter import ZeroAdapter  # noqa: PLC0415
    from perseus_ds.adapters.zero.orders import order_of  # noqa: PLC0415
    from perseus_ds.runtime.startup.activation import activate  # noqa: PLC0415

    activate(engine, lambda: ZeroAdapter(engine, order_of(first.kinds)), block=block)
