"""A GPU whose clock a guard writes: read here, written there."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

from perseus_ds.device.clock_agenda import DatedClocks
from perseus_ds.device.gpu import Capabilities, ConflictKind, Gpu, ReadThroughGpu, Sighting
from perseus_ds.errors import DeviceError, ValueRefusedError
from perseus_ds.guard.client import GuardClient
from perseus_ds.guard.spawn import SpawnedGuard, spawn

_LEASE_S = 30.0


class GuardedGpu(ReadThroughGpu):
    """Reads through ``reader`` in this process; `lock_clock` is a message that never blocks the caller.

    `reset_clock` puts back the device's own choice, or the clock that an operator has stated.
    """

    def __init__(
        self,
        reader: Gpu,
        client: GuardClient,
        *,
        guard: SpawnedGuard | None = None,
        lease_s: float = _LEASE_S,
    ) -> None:
        backend = "nvml" if guard is None else guard.backend
        taken = client.take(reader.identify().uuid, owner_text(), backend=backend, lease_s=lease_s)
        if guard is not None:
            guard.has_taken = True
        super().__init__(reader, _able(reader.capabilities(), taken.floor_mhz))
        self._client = client
        self._guard = guard
        self._dated = taken.dated
        self._asked_mhz: int | None = None

    def lock_clock(self, clock_mhz: int) -> None:
        """Ask the guard for a clock; returns at once.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid.
            DeviceError: the guard refused an earlier request, or is gone.
        """
        self._check_clock(clock_mhz)
        self._client.request(clock_mhz)
        self._asked_mhz = clock_mhz

    def refused_mhz(self) -> frozenset[int]:
        """Those that the guard reported: its driver does not take them."""
        return self._client.refused_mhz

    def reset_clock(self) -> None:
        """Ask the guard for the clock without a request; harmless when the guard is gone."""
        self._asked_mhz = None
        with contextlib.suppress(DeviceError):
            self._client.request(None)

    def dated_clocks(self) -> DatedClocks | None:
        """Requests that the guard makes in its own process; None where its clock is not ours."""
        return self._client.dated if self._dated else None

    def expect(self, *, call_s: float, latency_s: float, held_mhz: int = 0) -> None:
        """Inform the guard what plans reckon with."""
        if self._dated:
            self._client.expect(call_s=call_s, latency_s=latency_s, held_mhz=held_mhz)

    def sync(self) -> None:
        """Wait until the guard has done everything asked so far; never on the training thread's way.

        Raises:
            ValueRefusedError: the driver does not take what was asked for last.
        """
        self._client.sync()
        if self._asked_mhz in self._client.refused_mhz:
            raise ValueRefusedError(f"{self.identify().name}: lock {self._asked_mhz} MHz: refused")

    def conflicts(self) -> tuple[Sighting, ...]:
        """What the guard saw of others at work on this GPU: the last line of each kind, and its count."""
        lines, counts = self._client.conflict_lines, dict(self._client.conflicts)
        return tuple(
            Sighting(kind, lines[kind.name], counts[kind.name])
            for kind in ConflictKind
            if kind.name in counts
        )

    def given_up(self) -> DeviceError | None:
        """The guard's refusal, or that it is gone."""
        return self._client.failure

    def in_control(self) -> bool:
        """Whether the guard is there and answers."""
        return self._client.in_control

    def close(self) -> None:
        """Hang up and wait until the guard has put the clock back; one that was killed is made good for."""
        self._client.close()
        if self._guard is not None:
            self._guard.make_good()
            self._guard = None
        super().close()


def guarded(reader: Gpu, backend: str = "nvml", restore_clock_mhz: int | None = None) -> GuardedGpu:
    """Start a guard that sets a GPU's clock through ``backend``, and at last to ``restore_clock_mhz``.

    Raises:
        DeviceError: the guard could not take the GPU; the reader is closed.
    """
    sock, process = spawn(restore_clock_mhz)
    guard = SpawnedGuard(process, reader, backend, restore_clock_mhz=restore_clock_mhz)
    client = GuardClient(sock, on_lost=guard.make_good)
    try:
        return GuardedGpu(reader, client, guard=guard)
    except DeviceError:
        client.close()
        sock.close()
        guard.wait()
        reader.close()
        raise


def owner_text() -> str:
    """Name this job for others who ask for the same GPU."""
    program = Path(sys.argv[0]).name or "python"
    return f"{program} (pid {os.getpid()})"


def _able(reader: Capabilities, floor_mhz: int) -> Capabilities:
    """The reader's answer, with the guard's right to lock, down to the guard's floor."""
    clocks_mhz = tuple(clock for clock in reader.clocks_mhz if clock >= floor_mhz)
    why_not = None if clocks_mhz else reader.why_not
    return replace(reader, clocks_mhz=clocks_mhz, can_lock=why_not is None, why_not=why_not)
