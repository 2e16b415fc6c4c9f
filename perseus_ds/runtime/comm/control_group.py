"""The gloo group that carries our control traffic: beside the training's groups, with few connections.

torch.distributed does not know it: it is made over the job's key-value store under a name of its own. It
takes no part in the order in which a framework makes its groups, and leaves nothing behind in their registry.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo, _get_default_store

from perseus_ds.errors import SilentRankError
from perseus_ds.runtime.comm.interfaces import VARIABLE, Reach


def control_group(
    name: str, reach: Reach, *, patience: timedelta, at_once: bool = False
) -> dist.ProcessGroup:
    """Make the group of all ranks, in no step with them: a rank that has something for another connects then.

    ``at_once``: every rank connects to every other now. A lazy connection makes a message wait until its
    receiver asks for it.

    Its collectives go round a ring and along trees. A rank has at most ``2 + log2(ranks)`` connections, where
    a group of torch.distributed has one to every other rank. ``name`` is alike on all ranks and used once.

    Raises:
        SilentRankError: no address to listen at, or the store does not answer.
    """
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001  # not in torch's stub
    options._timeout = patience  # noqa: SLF001
    try:
        options._devices = [_device(reach, lazy=not at_once)]  # noqa: SLF001
        own = PrefixStore(f"{name}/gloo", _get_default_store())
        group = ProcessGroupGloo(own, dist.get_rank(), dist.get_world_size(), options)
    except RuntimeError as error:
        raise SilentRankError(
            f"no control traffic between ranks: {str(error).splitlines()[0]}",
            hint=f"{VARIABLE} names the interface that leads to the other hosts",
        ) from error
    return cast("dist.ProcessGroup", group)  # its collectives, which torch's stub of it leaves out


def _device(reach: Reach, *, lazy: bool) -> ProcessGroupGloo.Device:
    """Listen at the interface, else at the address, else where gloo chooses.

    Raises:
        RuntimeError: gloo does not take it.
    """
    if reach.interface:
        return _created(ProcessGroupGloo.create_device, lazy=lazy, interface=reach.interface)
    if reach.address:
        return _created(ProcessGroupGloo.create_device, lazy=lazy, hostname=reach.address)
    return _created(ProcessGroupGloo.create_default_device, lazy=lazy)


def _created(
    create: Callable[..., ProcessGroupGloo.Device], *, lazy: bool, **where: str
) -> ProcessGroupGloo.Device:
    """Create a device; over a lazy one ranks connect when one has something for another."""
    try:
        return create(**where, lazy_init=lazy)
    except TypeError:  # torch before 2.7: every rank connects to every other at once
        return create(**where)
