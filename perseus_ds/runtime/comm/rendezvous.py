"""Before the first collective of ours: is every rank here, do all agree, and can all be served?

A rank without the plugin (an image that differs, a start-up hook switched off) would leave the others
hanging in ``new_group``. So everyone signs in at the job's own key-value store first and reads the list,
with a bounded wait. A rank that cannot be served signs in as well, with its refusal: nobody waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from perseus_ds.config import FLAGS
from perseus_ds.errors import EngineError, PerseusError
from perseus_ds.runtime.comm.refusals import in_words, joint_refusal

_PATIENCE_S = 120.0
_MOST_REFUSALS = 64  # that anybody reads: a job of thousands of ranks refuses for a handful of reasons
_attendances = 0


@dataclass(frozen=True, slots=True)
class Meeting:
    """What came of a rendezvous: rank 0's settings, why no rank is served, and which one says so."""

    settings: Mapping[str, object] = field(default_factory=dict)
    refusal: PerseusError | None = None
    speaker: int = 0

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
    number: int | None = None,
) -> Meeting:
    """Sign in, and return rank 0's settings: launchers do not carry every environment variable to every node.

    ``refusal`` is why this rank cannot be served. ``number`` says which meeting it is, where that is not how
    often this process has come. Whoever notices that a rank is missing tells the others through the store.
    """
    store, prefix = _signed_in(settings, refusal, number)
    ranks = dist.get_world_size()
    everyone = [f"{prefix}/{one}" for one in range(ranks)]
    try:
        store.wait(everyone, timedelta(seconds=patience_s))
    except RuntimeError:
        store.set(f"{prefix}/absent", "1")
        present = [store.check([key]) for key in everyone]
        absent = [one for one, here in enumerate(present) if not here]
        return Meeting(refusal=_absence(absent, patience_s), speaker=present.index(True))
    if store.check([f"{prefix}/absent"]):
        gave_up = EngineError(
            "another rank gave up waiting for this one", hint="the job trains on without us"
        )
        return Meeting(refusal=gave_up)
    return Meeting(json.loads(store.get(everyone[0])), _refusal(store, prefix, ranks))


def leave_refusal(refusal: PerseusError, settings: Mapping[str, object]) -> None:
    """Sign in with a refusal and wait for nobody."""
    _signed_in(settings, refusal, None)


def _signed_in(
    settings: Mapping[str, object], refusal: PerseusError | None, number: int | None
) -> tuple[distributed_c10d.Store, str]:
    """Leave what all have to know, the refusal first; return where."""
    global _attendances  # noqa: PLW0603  # one store for the whole process: every call signs a new list
    _attendances += 1
    store = distributed_c10d._get_default_store()  # noqa: SLF001  # the seam: torch offers no public way
    prefix, rank = f"perseus/{number or _attendances}", dist.get_rank()
    if refusal is not None:
        nth = store.add(f"{prefix}/refusals", 1)
        store.set(f"{prefix}/refusal/{nth}", json.dumps([rank, refusal.message, refusal.hint]))
    store.set(f"{prefix}/{rank}", json.dumps(dict(settings), default=str))
    return store, prefix


def _refusal(store: distributed_c10d.Store, prefix: str, ranks: int) -> PerseusError | None:
    """Read what refusing ranks have left before they signed in; None where all can be served."""
    count = store.add(f"{prefix}/refusals", 0)
    left = [json.loads(store.get(f"{prefix}/refusal/{n + 1}")) for n in range(min(count, _MOST_REFUSALS))]
    refusals: dict[int, PerseusError] = {rank: EngineError(text, hint=hint) for rank, text, hint in left}
    return joint_refusal(refusals, ranks=len(left) if count == ranks else ranks) if refusals else None


def _absence(absent: list[int], patience_s: float) -> EngineError:
    return EngineError(
        f"{in_words(absent)} did not sign in within {patience_s:.0f} s",
        hint="is perseus_ds installed and switched on, and PERSEUS_CONFIG set if it is used, on every node? "
        "see perseus-ds hook status there",
    )
