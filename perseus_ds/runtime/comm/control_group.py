"""The gloo group that carries our control traffic: beside the training's groups, with few connections.

torch.distributed does not know it: it is made over the job's key-value store under a name of its own. It
takes no part in the order in which a framework makes its groups, and leaves nothing behind in their registry.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo, Store, _get_default_store

from perseus_ds.errors import SilentRankError
from perseus_ds.runtime.comm.interfaces import VARIABLE, Reach


def control_group(
    name: str,
    reach: Reach,
    *,
    patience: timedelta,
    store: Store | None = None,
    at_once: bool = False,
) -> dist.ProcessGroup:
    """Make the group of all ranks, in no step with them: a rank that has something for another connects then.

    ``at_once``: every rank connects to
    every other now. A lazy connection makes a message wait until its receiver asks for it.

    Its collectives go round a ring and along trees. A rank has at most ``2 + log2(ranks)`` connections, where
    a group of torch.distributed has one to every other rank. ``name`` is alike on all ranks and used once.

    Raises:
        SilentRankError: no address to listen at, or the store does not answer.
    """
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001  # not in torch's stub
    options._timeout = patience  # noqa: SLF001
    try:
        options._devices = [_device(reach, lazy=not at_once)]  # noqa: SLF001
        own = PrefixStore(f"{name}/gloo", store or _get_default_store())
        group = ProcessGroupGloo(own, dist.get_rank(), dist.get_world_size(), options)
    except RuntimeError as error:
        raise SilentRankError(
            f"no control traffic between ranks: {str(error).splitlines()[0]}",
            hint=f"{VARIABLE} names the interface that leads to the other hosts",
        ) from error
    return cast("dist.ProcessGroup", group)  # its collectives, which torch's stub of it leaves out


def connected_group(
    name: str, reach: Reach, store: Store, *, patience: timedelta, within: timedelta
) -> dist.ProcessGroup | None:
    """Make the group of all ranks and have a number travel in it; None where it is not back in time.

    ``within`` is for that number alone: whatever comes after it may wait as long as in any group. It bounds
    the group, not the number's own exchange: gloo waits as long as the group may for a host without a route.
    """
    try:
        group = control_group(name, reach, patience=within, store=store)
        group.allreduce([torch.zeros(1)]).wait()
    except (SilentRankError, RuntimeError):
        return None
    with suppress(AttributeError, RuntimeError):  # private: without it the group stays impatient
        group._set_default_timeout(patience)  # type: ignore[attr-defined]  # noqa: SLF001
    return group


def private_store() -> Store:
    """The job's key-value store over a connection of our own, so that nobody waits for our calls."""
    store = _get_default_store()
    try:
        return cast("Store", store.clone())  # type: ignore[attr-defined]  # not in torch's stub
    except (AttributeError, RuntimeError):  # torch before 2.9, or a kind of store that has no copies
        return store


def _device(reach: Reach, *, lazy: bool) -> ProcessGroupGloo.Device:
    """Listen at the first interface that gloo takes, else at the address, else where gloo chooses.

    Raises:
        RuntimeError: gloo takes none of them.
    """
    refused = RuntimeError("no interface")
    for name in reach.interfaces:
        try:
            return _created(ProcessGroupGloo.create_device, lazy=lazy, interface=name)
        except RuntimeError as error:
            refused = error
    if reach.interfaces:
        raise refused
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
