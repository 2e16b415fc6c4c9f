"""Rules: who may take which GPU, and how low its clock may go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.errors import DevicePermissionError

_HINT = "the operator's allow list decides: perseus-ds guardd --allow"


@dataclass(frozen=True, slots=True)
class Peer:
    """A process; ``cgroup`` is its control group, ``devices`` that of version 1's device controller."""

    pid: int
    uid: int
    cgroup: str = ""
    devices: str = ""

    def __str__(self) -> str:
        return f"user {self.uid}, process {self.pid}"

    def fields(self) -> dict[str, int | str | None]:
        """Name it for the log."""
        return {"uid": self.uid, "pid": self.pid, "cgroup": self.cgroup or None}


def control_groups(pid: int | str = "self") -> dict[str, str]:
    """Return a process's control groups, by controller; version 2 has none of a name. Source: cgroups(7)."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError):
        # A name may hold any end of a line but this one: with others a user would choose the group seen here.
        for line in filter(None, Path(f"/proc/{pid}/cgroup").read_bytes().split(b"\n")):
            _, controllers, path = line.decode(errors="replace").split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of the allow list: ``uid`` and ``cgroup`` (a prefix) of ``None`` match everybody.

    ``gpus`` of ``None`` are all; with ``own`` they are those that the peer itself may open.
    """

    gpus: frozenset[str] | None = None
    uid: int | None = None
    cgroup: str | None = None
    own: bool = False

    def matches(self, peer: Peer) -> bool:
        group = self.cgroup
        in_group = group is None or peer.cgroup == group or peer.cgroup.startswith(group.rstrip("/") + "/")
        return in_group and (self.uid is None or self.uid == peer.uid)

    def allows(self, uuid: str, owns: Callable[[], bool]) -> bool:
        """Return whether this line, which is about a peer, lets it have a GPU."""
        return (self.gpus is None or uuid in self.gpus) and (not self.own or owns())


@dataclass(frozen=True, slots=True)
class Policy:
    """The allow list, the floor and the clock that a GPU has at the end; no rules allow nobody.

    ``restore_clock_mhz`` of ``None`` is the driver's own choice.
    """

    rules: tuple[Rule, ...] = ()
    floor_mhz: int = 0
    restore_clock_mhz: int | None = None

    def check_connection(self, peer: Peer) -> None:
        """Refuse a peer that no rule names."""
        if not any(rule.matches(peer) for rule in self.rules):
            raise DevicePermissionError(f"{peer} may not control any GPU", hint=_HINT)

    def check(self, peer: Peer, uuid: str, *, owns: Callable[[], bool] = lambda: False) -> None:
        """Refuse a GPU that no rule lets a peer have; ``owns`` is asked whether the peer may open it."""
        if not any(rule.matches(peer) and rule.allows(uuid, owns) for rule in self.rules):
            raise DevicePermissionError(f"{peer} may not control {uuid}", hint=_HINT)

    def clamped_mhz(self, clock_mhz: int, clocks_mhz: tuple[int, ...]) -> int:
        """Raise a clock below the floor to the lowest grid clock that is not."""
        if clock_mhz >= self.floor_mhz:
            return clock_mhz
        return min((clock for clock in clocks_mhz if clock >= self.floor_mhz), default=clocks_mhz[0])
