"""Before the first collective of ours: is every rank here, do all agree, and can all be served?

A rank without the plugin (an image that differs, a start-up hook switched off) would leave the others
hanging in ``new_group``. So everyone signs in at the job's own key-value store first and reads the list,
with a bounded wait. A rank that cannot be served signs in as well, with its refusal: nobody waits for it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import Store

import perseus_ds
from perseus_ds.config import FLAGS
from perseus_ds.errors import EngineError, PerseusError
from perseus_ds.runtime.channel import joint_refusal, ranks_in_words
from perseus_ds.runtime.reach import Reach, reach_of, towards

# Lists in a key-value store on which ranks sign in: which list is the present one, and who is on it.
#
# A rank does not know how often the others have come. It may be new where they have been restarted within
# their process, or have waited for an engine of its own. So the store counts, for each rank, and where
# counts differ rank 0's list is everybody's. A list on which all stand is nothing yet: only a present rank
# 0 lets them go on. So names which a former life of the job has left there mislead nobody.

_MOST_REFUSALS = 64  # that anybody reads: a job of thousands of ranks refuses for a handful of reasons
_POLL_S = 1.0
_OFTEN = 1024  # ranks that may ask the store so often; more of them ask less often
_LEAST_S = 0.01  # stores take whole milliseconds, and none at all for "without limit"
_RANK_0 = "perseus/rank 0"


class SignIn:
    """A rank's way to the list of the present meeting; it begins on the first that it never signed."""

    def __init__(self, store: Store, rank: int, ranks: int, *, version: str = "") -> None:
        self._store = store
        self._version = version
        self._rank = rank
        self._everyone = range(ranks)
        self._signed = f"perseus/signed/{rank}"
        self._number = store.add(self._signed, 1)

    def find_round(self, grace_s: float) -> bool:
        """Leave a list on which somebody has given up for the next one; return whether one is there.

        It is where others are, or come soon: who finds nobody was waited for in vain.
        """
        while self._has("given up"):
            if not self._wait([self._key("anyone", self._number + 1)], grace_s):
                return False
            self._go_to(self._number + 1)
        return True

    @property
    def name(self) -> str:
        return f"perseus/{self._number}"

    def sign(
        self, settings: Mapping[str, object], refusal: PerseusError | None, *, address: str = ""
    ) -> None:
        """Leave what all have to know, the refusal first.

        ``address`` leads to this rank from other hosts. One of them is enough for a rank whose master has a
        name that means the loopback there.
        """
        self._settings, self._reason, self._address = settings, refusal, address
        if refusal is not None:
            nth = self._store.add(self._key("refusals"), 1)
            said = json.dumps([self._rank, refusal.message, refusal.hint])
            self._store.set(self._key(f"refusal/{nth}"), said)
        if address:
            self._store.set(self._key("address"), address)
        if self._store.add(self._key(f"of {self._version}"), 1) == 1:  # the first of this release
            nth = self._store.add(self._key("versions"), 1)
            left = [self._version, self._rank, socket.gethostname()]
            self._store.set(self._key(f"version/{nth}"), json.dumps(left))
        self._store.set(self._key(self._rank), json.dumps(dict(settings), default=str))
        self._store.set(self._key("anyone"), "1")
        if self._rank == 0:
            self._store.set(_RANK_0, str(self._number))

    def leave(self) -> None:
        """Wait for nobody; nobody waits for rank 0 then, whose refusal is everyone's."""
        if self._rank == 0:
            self._store.set(self._key("go"), "1")

    def meet(self, patience_s: float) -> list[int] | None:
        """Wait for the others, on rank 0's list; note on it if they do not come.

        Returns: None where all are here, else who is absent: nobody where somebody gave up who came since.
        """
        if self._rank == 0:
            met = self._wait([self._key(one) for one in self._everyone], patience_s)
        else:
            met = self._wait_for_go(patience_s)
        if not met:
            self._store.set(self._key("given up"), "1")
            return [one for one in self._everyone if not self._store.check([self._key(one)])]
        if self._has("given up"):
            return []
        if self._rank == 0:
            self._store.set(self._key("go"), "1")
        return None

    def signature_of(self, rank: int) -> bytes:
        left: bytes = self._store.get(self._key(rank))
        return left

    def address(self) -> str:
        """An address that leads to some rank from other hosts; "" where nobody left one."""
        return str(self._store.get(self._key("address")).decode()) if self._has("address") else ""

    def refusal(self) -> PerseusError | None:
        """Read what refusing ranks have left before they signed in; None where all can be served."""
        store, ranks = self._store, len(self._everyone)
        count = store.add(self._key("refusals"), 0)
        keys = [self._key(f"refusal/{n + 1}") for n in range(min(count, _MOST_REFUSALS))]
        left = [json.loads(store.get(key)) for key in keys]
        refusals: dict[int, PerseusError] = {rank: EngineError(text, hint=hint) for rank, text, hint in left}
        return joint_refusal(refusals, ranks=len(left) if count == ranks else ranks) if refusals else None

    def other_version(self) -> PerseusError | None:
        """Refuse ranks of different releases: what they exchange has another form. Alike on all of them."""
        if self._store.add(self._key(f"of {self._version}"), 0) == len(self._everyone):
            return None
        kinds = min(self._store.add(self._key("versions"), 0), _MOST_REFUSALS)
        left = sorted(json.loads(self._store.get(self._key(f"version/{n + 1}"))) for n in range(kinds))
        found = [f"{version} on rank {rank} (host {host})" for version, rank, host in left]
        if kinds == 1:
            found.append("one that does not state its version on another rank")
        return EngineError(
            f"ranks have different releases of perseus_ds: {', '.join(found)}",
            hint="install the same release on every host",
        )

    def _wait_for_go(self, patience_s: float) -> bool:
        """Wait for rank 0's word; where it stands on a later list, the names on this one are old."""
        until_s = time.monotonic() + patience_s
        poll_s = _POLL_S * max(1.0, len(self._everyone) / _OFTEN)
        while (left_s := until_s - time.monotonic()) > 0:
            if self._wait([self._key("go")], min(left_s, poll_s)):
                return True
            if self._has("given up"):
                return False
            if self._store.check([_RANK_0]) and (number := int(self._store.get(_RANK_0))) > self._number:
                self._go_to(number)
                self.sign(self._settings, self._reason, address=self._address)
        return False

    def _go_to(self, number: int) -> None:
        self._store.add(self._signed, number - self._number)
        self._number = number

    def _wait(self, keys: list[str], within_s: float) -> bool:
        try:
            self._store.wait(keys, timedelta(seconds=max(within_s, _LEAST_S)))
        except RuntimeError:
            return False
        return True

    def _has(self, word: str) -> bool:
        present: bool = self._store.check([self._key(word)])
        return present

    def _key(self, what: str | int, number: int | None = None) -> str:
        return f"perseus/{number or self._number}/{what}"


_PATIENCE_S = 120.0
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class RendezvousResult:
    """Result of a rendezvous: rank 0's settings, or why no rank is served, and the rank that refused.

    ``name`` is this meeting's own among all that the job's store knows, ``reach`` where this rank listens.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    refusal: PerseusError | None = None
    logging_rank: int = 0
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
) -> RendezvousResult:
    """Sign in, and return rank 0's settings: launchers do not carry every environment variable to every node.

    ``refusal`` is why this rank cannot be served. A rank that notices a missing one informs the others
    through the store. A rank that finds a list on which that stands waits ``grace_s`` for somebody on the
    next one.
    """
    reach = reach_of(_master())
    roll = SignIn(_store(), dist.get_rank(), dist.get_world_size(), version=perseus_ds.__version__)
    if not roll.find_round(grace_s):
        return RendezvousResult(refusal=_gave_up())
    roll.sign(settings, refusal, address="" if reach.is_local else reach.address)
    absent = roll.meet(patience_s)
    if absent:
        first = next(rank for rank in range(dist.get_world_size()) if rank not in absent)
        return RendezvousResult(refusal=_absence(absent, patience_s), logging_rank=first)
    if absent is not None:
        return RendezvousResult(refusal=_gave_up())
    if reach.is_local and (address := roll.address()):
        reach = towards(address)
    found = json.loads(roll.signature_of(0))
    return RendezvousResult(found, roll.other_version() or roll.refusal(), name=roll.name, reach=reach)


def leave_refusal(refusal: PerseusError, settings: Mapping[str, object]) -> None:
    """Sign in with a refusal and wait for nobody."""
    roll = SignIn(_store(), dist.get_rank(), dist.get_world_size(), version=perseus_ds.__version__)
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
        f"{ranks_in_words(absent)} did not sign in within {patience_s:.0f} s",
        hint="is perseus_ds installed and switched on, and PERSEUS_CONFIG set if it is used, on every node? "
        "see perseus-ds doctor there",
    )
