"""Who may take which GPU, and how low its clock may go."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.errors import DevicePermissionError


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a socket, as the kernel says."""

    pid: int
    uid: int
    gid: int
    cgroup: str = ""

    def __str__(self) -> str:
        return f"user {self.uid}, process {self.pid}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the allow list: ``uid`` and ``cgroup`` (a prefix) of ``None`` match everybody."""

    gpus: frozenset[str] | None = None
    uid: int | None = None
    cgroup: str | None = None

    def allows(self, peer: Peer, uuid: str) -> bool:
        """Whether this line lets a peer have a GPU."""
        return (
            (self.gpus is None or uuid in self.gpus)
            and (self.uid is None or self.uid == peer.uid)
            and (self.cgroup is None or _below(peer.cgroup, self.cgroup))
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The allow list and the floor; no rules allow nobody."""

    rules: tuple[Rule, ...] = ()
    floor_mhz: int = 0

    def check(self, peer: Peer, uuid: str) -> None:
        """Let a peer have a GPU.

        Raises:
            DevicePermissionError: no rule allows it.
        """
        if not any(rule.allows(peer, uuid) for rule in self.rules):
            raise DevicePermissionError(
                f"{peer} may not control {uuid}",
                hint="the operator's allow list decides: perseus-ds guardd --allow",
            )

    def clamped_mhz(self, clock_mhz: int, clocks_mhz: tuple[int, ...]) -> int:
        """Raise a clock below the floor to the lowest grid clock that is not."""
        if clock_mhz >= self.floor_mhz:
            return clock_mhz
        return min((clock for clock in clocks_mhz if clock >= self.floor_mhz), default=clocks_mhz[0])


EVERYTHING = Policy((Rule(),))


def _below(cgroup: str, prefix: str) -> bool:
    return cgroup == prefix or cgroup.startswith(prefix.rstrip("/") + "/")
