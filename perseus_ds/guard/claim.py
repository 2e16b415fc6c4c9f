"""The claim on one GPU: its ownership lock, its journal, and the way back to the clock it has without us.

Who dies, who notices it, what restores the clock, and in how long (beside the driver's own call):

=========================  ==================================  ==================================  =======
who dies                   who notices, by what                what restores the clock             within
=========================  ==================================  ==================================  =======
trainer (any signal, OOM)  its guard: pidfd, end of file       the guard, `GpuClaim.release`       0.05 s
trainer stopped, or hung   its guard: no packet for a lease    the guard, which keeps the claim    30 s
launcher of a hung job     its guard: the launcher's pidfd     the guard, which ends control       0.05 s
job by its control group   a guard outside it: pidfd           the guard                           0.05 s
guard (SIGKILL)            its trainer: end of file            the trainer, by its own handle      0.5 s
guard and trainer at once  nobody                              next job, service, `clocks reset`   journal
service of the node        service manager, clients            the service that starts next        journal
guard hung in its driver   its trainer: no answer for a lease  the guard, once its driver answers  --
nobody, driver refuses     whoever restores                    the same, by `retry`                30 s
... for longer than that   next job, service, `clocks reset`   the same                            journal
machine                    nobody                              clocks do not outlive a boot        boot
=========================  ==================================  ==================================  =======
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from perseus_ds.device.gpu import Achieved, DeviceRequest, EventReason, Gpu, apparent_lock_mhz, is_at
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import (
    DeviceAbsentError,
    DeviceError,
    DeviceHeldError,
    DeviceLostError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)
from perseus_ds.guard import journal
from perseus_ds.guard.journal import BadJournalError, Journal
from perseus_ds.guard.protocol import printable

T = TypeVar("T")
OpenGpu = Callable[[str, str], Gpu]  # (backend, uuid)

RESTORE_S = 30.0
_BEGIN_S = 10.0  # what a killed guard left is restored so long, while the client waits for its answer
_READ_S = 2.0  # with a driver that refuses to be read
_ABSENT_S = 2.0
_LOOKERS_S = 5.0  # whoever looks whether a guard lives shares its lock for a moment (`repair.is_held`)
_LOOKS, _BETWEEN_LOOKS_S = 3, 0.05
_SETTLE_S, _POLL_S = 0.3, 0.004
_READS = 5
_MAX_NAME = 256
_FIRST_PAUSE_S, _GROWTH = 0.005, 1.6
_LONGEST_PAUSE_S = 0.1  # opening is some twenty calls: at 20 % errors one try in thirty succeeds


def is_transient(error: DeviceError) -> bool:
    """Return whether a refusal may pass: a missing right, a lost GPU and an unknown clock do not."""
    return not isinstance(error, DeviceLostError | DevicePermissionError | DeviceUnsupportedError)


def any_error(error: DeviceError) -> bool:
    """Retry whatever comes: on the way back no refusal is final, since a driver can recover from each."""
    del error
    return True


def pauses_s() -> Iterator[float]:
    """Yield the pauses between tries, ever longer, without end."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(_LONGEST_PAUSE_S, pause_s * _GROWTH)


def retry(
    act: Callable[[], T], for_s: float, is_transient: Callable[[DeviceError], bool] = is_transient
) -> T:
    """Try until it succeeds, the error is not transient, or the time is up: then raise the last error."""
    until_s = time.monotonic() + for_s
    for pause_s in pauses_s():
        try:
            return act()
        except DeviceError as error:
            if not is_transient(error) or time.monotonic() + pause_s > until_s:
                raise
        time.sleep(pause_s)
    raise AssertionError("the pauses have no end")


def open_gpu(backend: str, uuid: str) -> Gpu:
    """Open a GPU to set its clock, through one of `journal.BACKENDS`."""
    request = DeviceRequest(backend, uuid=uuid)
    if backend == "nvml":
        return NvmlGpu(request)
    if backend == "amdsmi":
        from perseus_ds.device.amd import AmdGpu  # noqa: PLC0415 - a node has GPUs of one vendor

        return AmdGpu(request)
    known = ", ".join(journal.BACKENDS)
    raise DeviceUnsupportedError(f"a guard cannot set clocks through {backend!r}: {known}")


@contextmanager
def opened_to_restore(open_gpu: OpenGpu, backend: str, uuid: str) -> Iterator[Gpu]:
    """Open a GPU whose clock has to be restored, and close it even if the driver refuses to.

    Without a list of clocks a lock could not be recognised. `DeviceAbsentError`: the driver has reported for
    a while that there is no such GPU.
    """
    gpu = retry(
        lambda: open_gpu(backend, uuid), _ABSENT_S, lambda error: isinstance(error, DeviceAbsentError)
    )
    try:
        if not gpu.capabilities().clocks_mhz:
            raise DeviceUnsupportedError(f"{uuid} lists no clocks")
        yield gpu
    finally:
        with contextlib.suppress(DeviceError):
            gpu.close()


class OwnershipLock:
    """The sole right to write one GPU's clock; the kernel frees it however its holder ends."""

    def __init__(self, uuid: str, owner: str) -> None:
        """Take the lock at once or not at all: a `DeviceHeldError` names its holder.

        A `DeviceUnavailableError`: somebody looks whether it is held, and will soon have looked.
        """
        path = journal.path_of(uuid).with_suffix(".lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        hint = "set PERSEUS_GUARD_DIR"
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            raise DevicePermissionError(f"cannot open {path}: {error.strerror}", hint=hint) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder, is_shared = "", False
            with contextlib.suppress(OSError):
                holder = printable(os.pread(self._file, _MAX_NAME, 0).decode(errors="replace"))
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                is_shared = True
            os.close(self._file)
            if is_shared:
                raise DeviceUnavailableError(f"the lock of {uuid} is being looked at") from error
            raise DeviceHeldError(f"the clock of {uuid} is held by {holder or 'somebody else'}") from error
        except OSError as error:  # a network file system, for one
            os.close(self._file)
            raise DevicePermissionError(f"cannot lock {path}: {error.strerror}", hint=hint) from error
        with contextlib.suppress(OSError):  # a disk that is full: the lock holds, its holder has no name
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, printable(owner).encode(errors="replace")[:_MAX_NAME], 0)

    def release(self) -> None:
        """Let go; the second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()


class GpuClaim:
    """An ownership lock, a journal and a GPU: taken together, released together.

    ``restore_clock_mhz`` is the clock that it has without a request, and at the end (``None``: the driver's
    own choice). ``locked_before_mhz`` is another one at which it looked locked before. ``remark`` is what was
    wrong with an earlier guard's journal.
    """

    def __init__(
        self,
        gpu: Gpu,
        owner: str,
        *,
        backend: str = "nvml",
        patience_s: float = RESTORE_S,
        restore_clock_mhz: int | None = None,
    ) -> None:
        """Take the GPU; what a killed guard left is restored first, or the GPU is refused."""
        identity = gpu.identify()
        self.gpu = gpu
        self.uuid = identity.uuid
        self.restore_clock_mhz = restore_clock_mhz
        self._patience_s = patience_s
        self._last_mhz: int | None = None
        self._lock = retry(
            lambda: OwnershipLock(self.uuid, owner),
            _LOOKERS_S,
            lambda error: is_transient(error) and not isinstance(error, DeviceHeldError),
        )
        try:
            begin_s = min(_BEGIN_S, patience_s)
            stale = restore_stale(gpu, self.uuid, for_s=begin_s)
            self.remark = "" if stale is None else stale.remark
            _check_restore_clock(gpu, self.uuid, restore_clock_mhz)
            locked_mhz = _apparent_lock_mhz(gpu)
            self.locked_before_mhz = None if locked_mhz == restore_clock_mhz else locked_mhz
            self._journal = Journal(
                uuid=self.uuid,
                name=printable(identity.name)[:_MAX_NAME],
                restore_clock_mhz=restore_clock_mhz,
                owner=printable(owner)[:_MAX_NAME],
                pid=os.getpid(),
                boot_id=journal.boot_id(),
                backend=backend,
            )
            journal.write(self._journal)
            if locked_mhz != restore_clock_mhz:  # the baseline is measured where the job leaves it
                retry(lambda: self.apply(None), begin_s)
            self._journal_path = journal.path_of(self.uuid)
        except BaseException:
            self._lock.release()
            raise

    def apply(self, clock_mhz: int | None) -> None:
        """Set a clock once, never without a journal on disk; ``None`` is the one without a request."""
        if clock_mhz is None:
            _apply(self.gpu, self.restore_clock_mhz)
            return
        self.keep_journal()
        self._last_mhz = clock_mhz
        self.gpu.lock_clock(clock_mhz)

    def keep_journal(self) -> None:
        """Write the journal again where somebody removed it (2 us where it is there)."""
        if not self._journal_path.exists():
            journal.write(self._journal)

    def release(self) -> None:
        """Restore the clock and read it back, then remove the journal, then free the lock; in that order.

        Where the clock cannot be restored the error is raised, and the journal stays for the next start.
        """
        try:
            restored = restore(
                self.gpu, self.restore_clock_mhz, for_s=self._patience_s, last_mhz=self._last_mhz
            )
            restored.forget(self.uuid)
        finally:
            self._lock.release()


def _check_restore_clock(gpu: Gpu, uuid: str, clock_mhz: int | None) -> None:
    able = gpu.capabilities()
    if clock_mhz is not None and clock_mhz not in able.clocks_mhz:
        what = f"restore_clock_mhz {clock_mhz} is not a clock of {uuid}"
        raise DeviceUnsupportedError(f"{what}: it has {able.grid}")


# The way back: the same for a claim that ends, for a journal that a killed guard left, and for `repair`.


@dataclass(frozen=True, slots=True)
class Restored:
    """A clock that the driver has taken (``None``: its own choice).

    ``hidden`` is why it cannot be read back, empty if it was. ``moved``: it has left the clock of its lock,
    though. ``remark`` is what was wrong with the journal.
    """

    clock_mhz: int | None
    hidden: str = ""
    moved: bool = False
    remark: str = ""

    def forget(self, uuid: str) -> None:
        """Remove the journal, unless the clock may still be where it was locked."""
        if not self.hidden or self.moved:
            journal.remove(uuid)


class _NotRestoredError(DeviceError):
    """A clock that the driver took, and that is not in force."""


def restore(gpu: Gpu, clock_mhz: int | None, *, for_s: float, last_mhz: int | None = None) -> Restored:
    """Set a clock (``None``: the driver's own choice) and read it back; a refusal is retried.

    ``last_mhz`` is the clock that was locked last, where that is known. In place of a clock that the driver
    refuses to the end the choice is its own. A `DeviceError` names the clock in force. Cost: the driver's
    call and the switch latency, or 0.3 s where the clock cannot be seen.
    """
    held_mhz = last_mhz

    def act() -> Restored:
        nonlocal held_mhz
        held_mhz = held_mhz or _read_mhz(gpu)  # once: after the first call that is taken it tells nothing
        _apply(gpu, clock_mhz)
        return _read_back(gpu, clock_mhz, held_mhz)

    try:
        return retry(act, for_s, any_error)
    except _NotRestoredError:
        raise
    except DeviceError as error:
        if isinstance(error, ValueRefusedError) and clock_mhz is not None:
            remark = f"{error.message}: default clocks are restored"
            return replace(restore(gpu, None, for_s=0.0, last_mhz=held_mhz), remark=remark)
        runs_mhz = _read_mhz(gpu)
        runs = "its clock cannot be read" if runs_mhz is None else f"it runs at {runs_mhz} MHz"
        raise type(error)(f"{error.message}; {runs}", hint=error.hint) from error


def restore_stale(gpu: Gpu, uuid: str, *, for_s: float) -> Restored | None:
    """Restore what a killed guard has left, if anything. The GPU's ownership lock must be held."""
    try:
        left = journal.read(uuid)
    except BadJournalError as error:
        return replace(restore(gpu, None, for_s=for_s), remark=str(error))
    if left is None or left.boot_id != journal.boot_id():
        return None
    clock_mhz = left.restore_clock_mhz
    if clock_mhz is None or clock_mhz in gpu.capabilities().clocks_mhz:
        return restore(gpu, clock_mhz, for_s=for_s)
    remark = f"the journal of {uuid} names {clock_mhz} MHz, not a clock of it: default clocks are restored"
    return replace(restore(gpu, None, for_s=for_s), remark=remark)


def _apply(gpu: Gpu, clock_mhz: int | None) -> None:
    if clock_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(clock_mhz)


def _apparent_lock_mhz(gpu: Gpu) -> int | None:
    """Look a few times, where the first look is not clear already."""
    try:
        return gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        samples: list[Achieved] = []
    idle = retry(gpu.load_pct, _READ_S) == 0
    for look in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS_S if look else 0)
        samples.append(retry(gpu.achieved, _READ_S))
        if apparent_lock_mhz(samples, gpu.capabilities(), idle=idle) is None:
            return None
    return samples[-1].clock_mhz


def _read_mhz(gpu: Gpu) -> int | None:
    for _ in range(_READS):  # a driver that is tired may answer the next time
        with contextlib.suppress(DeviceError):
            return gpu.achieved().clock_mhz
    return None


def _read_back(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> Restored:
    """Look until the clock is seen or has had the time to be; a driver that cannot be read is asked again."""
    until_s = time.monotonic() + _SETTLE_S
    while True:
        late = time.monotonic() > until_s
        try:
            restored = _look(gpu, wanted_mhz, held_mhz)
            if not restored.hidden or late:
                return restored
        except DeviceError:
            if late:
                raise
        time.sleep(_POLL_S)


def _look(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> Restored:
    """Judge by the device's own statement where it gives one, else by its clock.

    A clock that is where it should be, or at its highest, is restored. One that left where it was locked is
    free, unless the device has a reason to hold it down, which hides a lock as well.

    A `DeviceError`: it is where it was locked, for no reason; or nothing can be read.
    """
    wish = "the device's own choice" if wanted_mhz is None else f"{wanted_mhz} MHz"
    try:
        locked_mhz = gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        seen = gpu.achieved()
    else:
        if locked_mhz != wanted_mhz:
            runs_mhz = locked_mhz or gpu.achieved().clock_mhz
            raise _NotRestoredError(f"the driver took {wish} and still runs at {runs_mhz} MHz")
        return Restored(wanted_mhz)
    highest_mhz = gpu.capabilities().default_clock_mhz
    reasons = seen.event_reasons & ~EventReason.APPLICATIONS_CLOCKS
    there = seen.clock_mhz >= highest_mhz if wanted_mhz is None else is_at(wanted_mhz, seen)
    why_hidden = "held down by power or heat" if reasons else "it is not known where it was locked"
    if reasons & EventReason.GPU_IDLE:
        why_hidden = "idle"
    if there and highest_mhz:
        return Restored(wanted_mhz)
    if held_mhz is None:
        return Restored(wanted_mhz, why_hidden)
    left = not is_at(held_mhz, seen)
    if left and wanted_mhz is None and (not reasons or seen.clock_mhz > held_mhz):
        return Restored(wanted_mhz)
    if left and gpu.load_pct() == 0:
        return Restored(wanted_mhz, "idle", moved=True)
    if not reasons:
        raise _NotRestoredError(f"the driver took {wish} and still runs at {seen.clock_mhz} MHz")
    return Restored(wanted_mhz, why_hidden, moved=left)
