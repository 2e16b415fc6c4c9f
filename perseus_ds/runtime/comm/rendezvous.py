"""Before the first collective of ours: is every rank here, and do all mean the same?

A rank without the plugin (an image that differs, a start-up hook switched off) would leave the others
hanging in ``new_group``. So everyone signs in at the job's own key-value store first and reads the list,
with a bounded wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from perseus_ds.config import FLAGS
from perseus_ds.errors import EngineError

_PATIENCE_S = 120.0
_attendances = 0


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    """The PERSEUS_* flags in an environment."""
    return {name: environment[name] for name in FLAGS if environment.get(name)}


def rendezvous(
    settings: Mapping[str, object], *, patience_s: float = _PATIENCE_S, number: int | None = None
) -> Mapping[str, object]:
    """Sign in and return rank 0's settings: launchers do not carry every environment variable to every node.

    ``number`` says which meeting it is, where that is not how often this process has come.

    Raises:
        EngineError: some rank did not sign in; whoever notices tells the others through the store.
    """
    global _attendances  # noqa: PLW0603  # one store for the whole process: every call signs a new list
    _attendances += 1
    store = distributed_c10d._get_default_store()  # noqa: SLF001  # the seam: torch offers no public way
    prefix = f"perseus/{number or _attendances}"
    store.set(f"{prefix}/{dist.get_rank()}", json.dumps(dict(settings)))
    everyone = [f"{prefix}/{rank}" for rank in range(dist.get_world_size())]
    try:
        store.wait(everyone, timedelta(seconds=patience_s))
    except RuntimeError as error:
        store.set(f"{prefix}/absent", "1")
        absent = [key.rsplit("/", 1)[1] for key in everyone if not store.check([key])]
        raise EngineError(
            f"rank {', '.join(absent)} did not sign in within {patience_s:.0f} s",
            hint="is perseus_ds installed, and PERSEUS_CONFIG set if it is used, on every node? "
            "see perseus-ds hook status there",
        ) from error
    if store.check([f"{prefix}/absent"]):
        raise EngineError("another rank gave up waiting for this one", hint="the job trains on without us")
    settings_of_first: Mapping[str, object] = json.loads(store.get(everyone[0]))
    return settings_of_first
