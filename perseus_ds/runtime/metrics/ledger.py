"""The energy of one rank's GPU over all starts of its job: a line in a file that a kill does not undo."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from perseus_ds.device.guard.claim.journal import boot_id
from perseus_ds.errors import PerseusError
from perseus_ds.files import read_json
from perseus_ds.files.fields import MOST, Content, mapping, real, text, whole
from perseus_ds.run_directory import write_whole

_BRIDGED_S = 120.0
"""A restart in place: within that time the counter's steps are believed to be this job's."""

_BYTES = 512
_NOWHERE = -1.0


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What stands in the file.

    ``error_j`` is what earlier starts may have missed, ``step_j`` the last step that was noted. It stood at
    ``counter_j`` at ``at_s`` (CLOCK_BOOTTIME; -1 where no later start can continue it). ``saved_j`` is what
    the job's plans saved, with its error (rank 0 alone).
    """

    energy_j: float = 0.0
    error_j: float = 0.0
    step_j: float = 0.0
    counter_j: float = _NOWHERE
    at_s: float = _NOWHERE
    saved_j: float = 0.0
    saved_error_j: float = 0.0
    starts: int = 0
    gpu: str = ""
    boot_id: str = ""


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class EnergyLedger:
    """Adds every step of a GPU's energy counter to what earlier starts of the job have left.

    `EnergyWatch` calls `note` with each look of a thread, and once per second with what a process has seen. A
    file of one line is overwritten in place, so that SIGKILL loses one such step. After a restart in place
    (the same GPU, boot and counter, within two minutes) not even that is lost. What the GPU took in between
    is the job's. A file that cannot be written is reported once (`trouble`), and energy is counted on in
    memory. Nothing here raises.

    Cost: 15 us for each call with a step of the counter, 1 us for one without.
    """

    def __init__(self, path: Path, gpu: str, *, now_s: Callable[[], float] = _since_boot_s) -> None:
        self._path = path
        self._now_s = now_s
        self._trouble = ""
        self._lock = threading.Lock()  # of the descriptor
        self._descriptor: int | None = None
        self._last_j: float | None = None
        self._continues = True
        known, boot = self._known(), boot_id()
        self._before = known if (known.gpu, known.boot_id) == (gpu, boot) else replace(known, at_s=_NOWHERE)
        self.entry = replace(known, gpu=gpu, boot_id=boot, starts=known.starts + 1)
        self._open()

    def note(self, counter_j: float, *, anew: bool) -> None:
        """Take in a reading; ``anew``: the source counts from another start than before."""
        if counter_j == self._last_j and not anew:
            return
        now_s, entry = self._now_s(), self.entry
        step_j, error_j, last_j = entry.step_j, entry.error_j, self._last_j
        if last_j is not None and not anew:
            added_j = step_j = max(0.0, counter_j - last_j)
        else:
            added_j = 0.0 if anew else self._taken_between_j(counter_j, now_s)
            error_j += step_j if not added_j else 0.0
        self._continues = self._continues and not anew
        self._last_j = counter_j
        self.entry = replace(
            self.entry,
            energy_j=entry.energy_j + added_j,
            error_j=error_j,
            step_j=step_j,
            counter_j=counter_j,
            at_s=now_s if self._continues else _NOWHERE,
        )
        self._write()

    def save(self, saved_j: float, error_j: float) -> None:
        """Note what the job's plans have saved so far."""
        self.entry = replace(self.entry, saved_j=saved_j, saved_error_j=error_j)

    @property
    def energy_j(self) -> float:
        """All starts together."""
        return self.entry.energy_j

    @property
    def error_j(self) -> float:
        """What may be missing: a step now, and one for each start that was not bridged."""
        return self.entry.error_j + self.entry.step_j

    def trouble(self) -> str:
        """Report once why energy does not survive a restart; empty where it does."""
        trouble, self._trouble = self._trouble, ""
        return trouble

    def close(self) -> None:
        """Write the last line, and let go of the file."""
        self._write()
        with self._lock:
            self._let_go()

    def _taken_between_j(self, counter_j: float, now_s: float) -> float:
        """What the GPU took since the last step of the start before; 0 where that is unknown."""
        before = self._before
        in_place = before.at_s >= 0.0 and 0.0 <= now_s - before.at_s <= _BRIDGED_S
        return max(0.0, counter_j - before.counter_j) if in_place and before.counter_j >= 0.0 else 0.0

    def _known(self) -> LedgerEntry:
        try:
            return _entry(mapping(read_json(self._path, most_bytes=_BYTES), "it"))
        except FileNotFoundError:
            return LedgerEntry()
        except (OSError, PerseusError) as error:
            self._trouble = f"{self._path}: the energy of earlier starts is lost: {error}"
            return LedgerEntry()

    def _open(self) -> None:
        """Write the line anew and keep the file open: from here on it has its length."""
        try:
            write_whole(self._path, self._line())
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (OSError, PerseusError) as error:
            self._fail(error)

    def _write(self) -> None:
        with self._lock:
            try:
                if self._descriptor is not None:
                    os.pwrite(self._descriptor, self._line(), 0)
            except OSError as error:
                self._let_go()
                self._fail(error)

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _fail(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(error)
        self._trouble = f"{self._path} is not written: {reason}; a restart loses the energy counted so far"

    def _line(self) -> bytes:
        """One line of JSON, always as long: a shorter one leaves nothing of the one before."""
        content = {name: getattr(self.entry, name) for name in _NAMES}
        return (json.dumps(content).ljust(_BYTES - 1) + "\n").encode()


_NAMES = tuple(one.name for one in fields(LedgerEntry))
_REALS = [name for name in _NAMES if name not in {"starts", "gpu", "boot_id"}]


def _entry(content: Content) -> LedgerEntry:
    reals = {name: real(content, name, least=-MOST, most=MOST) for name in _REALS}
    starts = whole(content, "starts", least=0, most=1 << 40)
    return LedgerEntry(**reals, starts=starts, gpu=text(content, "gpu"), boot_id=text(content, "boot_id"))
