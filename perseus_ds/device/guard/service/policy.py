"""Who may take which GPU, and how low its clock may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseus_ds.device.guard.service.peer import Peer
from perseus_ds.errors import DevicePermissionError

_HINT = "the operator's allow list decides: perseus-ds guardd --allow"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the allow list: ``uid`` and ``cgroup`` (a prefix) of ``None`` match everybody.

    ``gpus`` of ``None`` are all; with ``own`` they are those that the peer itself may open.
    """

    gpus: frozenset[str] | None = None
    uid: int | None = None
    cgroup: str | None = None
    own: bool = False

    def speaks_of(self, peer: Peer) -> bool:
        """Whether this line is about a peer."""
        return (self.uid is None or self.uid == peer.uid) and (
            self.cgroup is None or _below(peer.cgroup, self.cgroup)
        )

    def allows(self, uuid: str, owns: Callable[[], bool]) -> bool:
        """Whether this line, which is about a peer, lets it have a GPU."""
        return (self.gpus is None or uuid in self.gpus) and (not self.own or owns())


@dataclass(frozen=True, slots=True)
class Policy:
    """The allow list, the floor and the clock that a GPU has at the end; no rules allow nobody.

    ``restore_clock_mhz`` of ``None`` is the driver's own choice.
    """

    rules: tuple[Rule, ...] = ()
    floor_mhz: int = 0
    restore_clock_mhz: int | None = None

    def admits(self, peer: Peer) -> bool:
        """Whether a peer may connect to us at all: some rule is about it."""
        return any(rule.speaks_of(peer) for rule in self.rules)

    def check(self, peer: Peer, uuid: str, *, owns: Callable[[], bool] = lambda: False) -> None:
        """Let a peer have a GPU; ``owns`` states whether the peer itself may open it, asked if need be.

        Raises:
            DevicePermissionError: no rule allows it.
        """
        if not any(rule.speaks_of(peer) and rule.allows(uuid, owns) for rule in self.rules):
            raise DevicePermissionError(f"{peer} may not control {uuid}", hint=_HINT)

    def clamped_mhz(self, clock_mhz: int, clocks_mhz: tuple[int, ...]) -> int:
        """Raise a clock below the floor to the lowest grid clock that is not."""
        if clock_mhz >= self.floor_mhz:
            return clock_mhz
        return min((clock for clock in clocks_mhz if clock >= self.floor_mhz), default=clocks_mhz[0])


EVERYTHING = Policy((Rule(),))


def refusal_of(peer: Peer) -> DevicePermissionError:
    """The answer to a peer that no rule names."""
    return DevicePermissionError(f"{peer} may not control any GPU", hint=_HINT)


def _below(cgroup: str, prefix: str) -> bool:
    return cgroup == prefix or cgroup.startswith(prefix.rstrip("/") + "/")
