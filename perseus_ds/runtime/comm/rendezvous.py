"""Before the first collective of ours: is every rank here, do all agree, and can all be served?

A rank without the plugin (an image that differs, a start-up hook switched off) would leave the others
hanging in ``new_group``. So everyone signs in at the job's own key-value store first and reads the list,
with a bounded wait. A rank that cannot be served signs in as well, with its refusal: nobody waits for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch.distributed as dist
from torch.distributed import distributed_c10d

import perseus_ds
from perseus_ds.config import FLAGS
from perseus_ds.errors import EngineError, PerseusError
from perseus_ds.runtime.comm.interfaces import Reach, reach_of, towards
from perseus_ds.runtime.comm.refusals import in_words
from perseus_ds.runtime.comm.roll_call import Attendance, RollCall

_PATIENCE_S = 120.0
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Meeting:
    """What came of a rendezvous: rank 0's settings, or why no rank is served, and the rank that refused.

    ``name`` is this meeting's own among all that the job's store knows, ``reach`` where this rank listens.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    refusal: PerseusError | None = None
    speaker: int = 0
    name: str = ""
    reach: Reach = field(default_factory=Reach)

    def check(self) -> None:
        """Return if all ranks can be served.

        Raises:
            PerseusError: why they cannot, alike on all ranks.
        """
        if self.refusal is not None:
            raise self.refusal


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    """The PERSEUS_* flags in an environment."""
    return {name: environment[name] for name in FLAGS if environment.get(name)}


def rendezvous(
    settings: Mapping[str, object],
    *,
    refusal: PerseusError | None = None,
    patience_s: float = _PATIENCE_S,
    grace_s: float = _GRACE_S,
) -> Meeting:
    """Sign in, and return rank 0's settings: launchers do not carry every environment variable to every node.

    ``refusal`` is why this rank cannot be served. A rank that notices a missing one informs the others
    through the store. A rank that finds a list on which that stands waits ``grace_s`` for somebody on the
    next one.
    """
    reach = reach_of(_master())
    roll = RollCall(_store(), dist.get_rank(), dist.get_world_size(), version=perseus_ds.__version__)
    if not roll.find_list(grace_s):
        return Meeting(refusal=_gave_up())
    roll.sign(settings, refusal, address="" if reach.is_local else reach.address)
    match roll.meet(patience_s):
        case Attendance.ALL_HERE:
            if reach.is_local and (address := roll.address()):
                reach = towards(address)
            found = json.loads(roll.signature_of(0))
            return Meeting(found, roll.other_version() or roll.refusal(), name=roll.name, reach=reach)
        case Attendance.GIVEN_UP:
            return Meeting(refusal=_gave_up())
        case Attendance.ABSENCE:
            present = roll.present()
            absent = [one for one, here in enumerate(present) if not here]
            return Meeting(refusal=_absence(absent, patience_s), speaker=present.index(True))


def leave_refusal(refusal: PerseusError, settings: Mapping[str, object]) -> None:
    """Sign in with a refusal and wait for nobody."""
    roll = RollCall(_store(), dist.get_rank(), dist.get_world_size(), version=perseus_ds.__version__)
    roll.sign(settings, refusal)
    roll.leave()


def _master() -> str:
    """The host of the job's key-value store, which every rank has reached; "" where it has none."""
    store = _store()
    while isinstance(store, distributed_c10d.PrefixStore):
        store = store.underlying_store
    return str(getattr(store, "host", "") or os.environ.get("MASTER_ADDR", ""))


def _store() -> distributed_c10d.Store:
    return distributed_c10d._get_default_store()  # noqa: SLF001  # the seam: torch offers no public way


def _gave_up() -> EngineError:
    return EngineError("another rank gave up waiting for this one", hint="the job trains on without us")


def _absence(absent: list[int], patience_s: float) -> EngineError:
    return EngineError(
        f"{in_words(absent)} did not sign in within {patience_s:.0f} s",
        hint="is perseus_ds installed and switched on, and PERSEUS_CONFIG set if it is used, on every node? "
        "see perseus-ds doctor there",
    )
