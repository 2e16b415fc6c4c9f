"""A GPU whose clock a guard writes: read here, written there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from perseus_ds.device.conflict import ConflictKind, Sighting
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.guard.claim.repair import repair
from perseus_ds.device.guard.client.guard_client import GuardClient
from perseus_ds.device.guard.client.spawn import spawn
from perseus_ds.device.read_through import ReadThroughGpu
from perseus_ds.device.record import Capabilities
from perseus_ds.errors import DeviceError

_LEASE_S = 30.0
_END_S = 10.0


class GuardedGpu(ReadThroughGpu):
    """Reads through ``reader`` in this process; `lock_clock` is a message that never blocks the caller.

    `reset_clock` puts back what the guard found, which is the default unless an operator had locked it.
    """

    def __init__(
        self,
        reader: Gpu,
        client: GuardClient,
        *,
        guard: subprocess.Popen[bytes] | None = None,
        backend: str = "nvml",
        lease_s: float = _LEASE_S,
    ) -> None:
        taken = client.take(reader.identify().uuid, owner_text(), backend=backend, lease_s=lease_s)
        super().__init__(reader, _able(reader.capabilities(), taken.floor_mhz))
        self._client = client
        self._guard = guard
        self.preexisting_mhz = taken.preexisting_mhz

    def lock_clock(self, clock_mhz: int) -> None:
        """Ask the guard for a clock; returns at once.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid.
            DeviceError: the guard refused an earlier request, or is gone.
        """
        self._check_clock(clock_mhz)
        self._client.request(clock_mhz)

    def reset_clock(self) -> None:
        """Ask the guard for the clock that it found; harmless when the guard is gone."""
        with contextlib.suppress(DeviceError):
            self._client.request(None)

    def sync(self) -> None:
        """Wait until the guard has done everything asked so far; never on the training thread's way."""
        self._client.sync()

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

    def close(self) -> None:
        """Hang up and wait until the guard has put the clock back; one that was killed is made good for."""
        self._client.close()
        if self._guard is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if self._guard.wait(_END_S) < 0:
                    _repair_at_once(self.identify().uuid, self._guard)
            self._guard = None
        super().close()


def guarded(reader: Gpu, backend: str = "nvml") -> GuardedGpu:
    """Start a guard that sets a GPU's clock through ``backend``.

    Raises:
        DeviceError: the guard could not take the GPU; the reader is closed.
    """
    sock, process = spawn()
    uuid = reader.identify().uuid
    client = GuardClient(sock, on_lost=lambda: _repair_at_once(uuid, process))
    try:
        return GuardedGpu(reader, client, guard=process, backend=backend)
    except DeviceError:
        client.close()
        sock.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver ends by itself
            process.wait(_END_S)
        reader.close()
        raise


def owner_text() -> str:
    """Name this job for others who ask for the same GPU."""
    program = Path(sys.argv[0]).name or "python"
    return f"{program} (pid {os.getpid()})"


def _repair_at_once(uuid: str, guard: subprocess.Popen[bytes]) -> None:
    """The guard was killed and we live: do its last duty.

    Its socket may close before its lease is free, so its end is waited for.
    """
    with contextlib.suppress(DeviceError, subprocess.TimeoutExpired):
        guard.wait(_END_S)
        repair(uuid)


def _able(reader: Capabilities, floor_mhz: int) -> Capabilities:
    """What the reader says, with the guard's right to lock, down to the guard's floor."""
    clocks_mhz = tuple(clock for clock in reader.clocks_mhz if clock >= floor_mhz)
    why_not = None if clocks_mhz else reader.why_not
    return replace(reader, clocks_mhz=clocks_mhz, can_lock=why_not is None, why_not=why_not)
