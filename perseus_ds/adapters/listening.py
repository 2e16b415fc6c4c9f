"""Around a framework's own calls: instructions that are announced to a guarded listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING

from perseus_ds.adapters.replacing import marked

if TYPE_CHECKING:
    from perseus_ds.runtime.adapter import GuardedListener
    from perseus_ds.schedule import Kind, Load

Call = Callable[..., object]
Loaded = Callable[[tuple[object, ...], Mapping[str, object]], "Load | None"]


def around(
    guard: GuardedListener,
    kind: Kind,
    original: Call,
    *,
    begins: bool = True,
    ends: bool = True,
    load: Loaded | None = None,
) -> Call:
    """Announce an instruction around what runs it; where several calls are one, it ``begins`` or ``ends``.

    ``load`` reads off a call's arguments how much it works on.
    """

    @wraps(original)
    def listened(*args: object, **kwargs: object) -> object:
        if not guard.wanted:
            return original(*args, **kwargs)
        if begins:
            guard.before(kind, None if load is None else partial(load, args, kwargs))
        result = original(*args, **kwargs)
        if ends:
            guard.after(kind)
        return result

    return marked(listened)
