"""Control of one GPU from taking it to giving it back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from perseus_ds.device.amd import AmdGpu
from perseus_ds.device.gpu import Achieved, DeviceRequest, EventReason, Gpu, apparent_lock_mhz, is_at
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import (
    DeviceAbsentError,
    DeviceError,
    DeviceHeldError,
    DeviceLostError,
    DevicePermissionError,
    DeviceUnsupportedError,
)
from perseus_ds.guard import journal
from perseus_ds.guard.journal import BadJournalError, Journal, path_of
from perseus_ds.guard.protocol import printable

# The one schedule of tries: soon, then ever less often, until it succeeds, cannot, or time is up.

T = TypeVar("T")

WAY_BACK_S = 30.0  # for a clock that has to be put back
_FIRST_PAUSE_S, _GROWTH = 0.005, 1.6
_LONGEST_PAUSE_S = 0.1  # opening is some twenty calls: at 20 % errors one try in thirty succeeds
_FINAL = (DeviceLostError, DevicePermissionError, DeviceUnsupportedError)


def may_pass(error: DeviceError) -> bool:
    """Whether a refusal may be a moment's: no right, no GPU and no such clock are not."""
    return not isinstance(error, _FINAL)


def whatever(error: DeviceError) -> bool:
    """On the way back no refusal is final: what the driver did once it can do again."""
    del error
    return True


def pauses_s() -> Iterator[float]:
    """The waits between tries, without end."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(_LONGEST_PAUSE_S, pause_s * _GROWTH)


def insist(act: Callable[[], T], *, for_s: float, passes: Callable[[DeviceError], bool] = may_pass) -> T:
    """Do something until it succeeds.

    Raises:
        DeviceError: it cannot succeed, or did not in this time.
    """
    until_s = time.monotonic() + for_s
    for pause_s in pauses_s():
        try:
            return act()
        except DeviceError as error:
            if not passes(error) or time.monotonic() + pause_s > until_s:
                raise
        time.sleep(pause_s)
    raise AssertionError("the pauses have no end")


# The holder of a GPU's clock: a lock that the kernel frees however its holder ends.

_LONGEST_NAME = 256


class OwnershipLock:
    """The sole right to write one GPU's clock, among all who keep their journals in the same folder."""

    def __init__(self, uuid: str, owner: str) -> None:
        """Take the lock at once or not at all.

        Raises:
            DeviceHeldError: somebody else holds it; the message names them.
            DevicePermissionError: the lock file cannot be opened.
        """
        path = path_of(uuid).with_suffix(".lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            raise DevicePermissionError(
                f"cannot open {path}: {error.strerror}", hint="set PERSEUS_GUARD_DIR"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self._holder()
            os.close(self._file)
            raise DeviceHeldError(f"the clock of {uuid} is held by {holder}") from error
        with contextlib.suppress(OSError):  # a disk that is full: the lock holds, its holder has no name
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, printable(owner).encode(errors="replace")[:_LONGEST_NAME], 0)

    def release(self) -> None:
        """Let go; the second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _holder(self) -> str:
        with contextlib.suppress(OSError):
            said = os.pread(self._file, _LONGEST_NAME, 0).decode(errors="replace")
            return printable(said) or "somebody else"
        return "somebody else"


# Put a clock back, and read it before anything reports it; also where a killed guard had left it.

_SETTLE_S, _POLL_S = 0.3, 0.004
_READS = 5  # of a clock that a tired driver may not tell


def apply_clock(gpu: Gpu, clock_mhz: int | None) -> None:
    """Ask the driver for a clock (``None``: its own choice).

    Raises:
        DeviceError: refused.
    """
    if clock_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(clock_mhz)


def restore(
    gpu: Gpu, restore_clock_mhz: int | None, *, for_s: float, last_mhz: int | None = None
) -> Unseen | None:
    """Set a clock (``None``: the driver's own choice) and see that it is; who refuses is asked again.

    Returns ``None`` where it is seen, else what hides it: the driver has taken it, no more is known.
    ``last_mhz`` is the clock that was locked last, where that is known.

    Raises:
        DeviceError: it did not come back in this time; the message names the clock that stands there.

    Cost: the driver's call and the switch latency, where nothing refuses; 0.3 s where it cannot be seen.
    """
    held_mhz = last_mhz

    def act() -> Unseen | None:
        nonlocal held_mhz
        held_mhz = held_mhz or _clock_mhz(gpu)  # once: after the first call that is taken it tells nothing
        apply_clock(gpu, restore_clock_mhz)
        return _read_back(gpu, restore_clock_mhz, held_mhz)

    try:
        return insist(act, for_s=for_s, passes=whatever)
    except _StandsError:
        raise
    except DeviceError as error:
        clock_mhz = _clock_mhz(gpu)
        runs = "its clock cannot be read" if clock_mhz is None else f"it runs at {clock_mhz} MHz"
        raise type(error)(f"{error.message}; {runs}", hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class Unseen:
    """A clock that is put back and not seen there; ``moved``: it has left the clock of its lock, though."""

    why: str
    moved: bool = False


def forget(uuid: str, unseen: Unseen | None) -> None:
    """Remove the journal of a clock that was put back, unless it may still stand where it was locked."""
    if unseen is None or unseen.moved:
        journal.remove(uuid)


@dataclass(frozen=True, slots=True)
class PutBack:
    """What a killed guard had left, put back; ``unseen`` says why it is not seen, ``remarks`` are logged."""

    restore_clock_mhz: int | None
    unseen: Unseen | None
    remarks: tuple[str, ...] = ()


def put_back_left(gpu: Gpu, uuid: str, *, for_s: float) -> PutBack | None:
    """Put back what a killed guard has left, if anything. The GPU's ownership lock must be held.

    Raises:
        DeviceError: it could not be put back in this time; the journal stays.
    """
    try:
        left = journal.read(uuid)
    except BadJournalError as error:
        return PutBack(None, restore(gpu, None, for_s=for_s), (str(error),))
    if left is None or left.boot_id != journal.boot_id():
        return None
    back_mhz, remarks = _on_grid(gpu, uuid, left.restore_clock_mhz)
    return PutBack(back_mhz, restore(gpu, back_mhz, for_s=for_s), remarks)


def _on_grid(gpu: Gpu, uuid: str, clock_mhz: int | None) -> tuple[int | None, tuple[str, ...]]:
    """A journaled clock as this GPU has it: the nearest one, and its own choice for what it never had."""
    clocks_mhz = gpu.capabilities().clocks_mhz
    if clock_mhz is None or clock_mhz in clocks_mhz:
        return clock_mhz, ()
    inside = clocks_mhz[-1] <= clock_mhz <= clocks_mhz[0]
    nearest_mhz = min(clocks_mhz, key=lambda clock: abs(clock - clock_mhz)) if inside else None
    instead = "its default clocks are" if nearest_mhz is None else f"{nearest_mhz} MHz is"
    return nearest_mhz, (
        f"the journal of {uuid} names {clock_mhz} MHz, not a clock of it: {instead} put back",
    )


def _clock_mhz(gpu: Gpu) -> int | None:
    for _ in range(_READS):
        with contextlib.suppress(DeviceError):
            return gpu.achieved().clock_mhz
    return None


def _read_back(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> Unseen | None:
    """Look until the clock is seen or has had the time to be; a driver that cannot be read is asked again."""
    until_s = time.monotonic() + _SETTLE_S
    while True:
        late = time.monotonic() > until_s
        try:
            unseen = _unseen(gpu, wanted_mhz, held_mhz)
            if unseen is None or late:
                return unseen
        except DeviceError:
            if late:
                raise
        time.sleep(_POLL_S)


def _unseen(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None) -> Unseen | None:
    """Judge by the device's own word where it gives one, else by its clock.

    A clock that is where it should be, or at its highest, is seen. One that left where it was locked is free,
    unless the device has a reason to hold it down, which hides a lock as well.

    Raises:
        DeviceError: it stands where it was locked, for no reason; or nothing can be read.
    """
    try:
        standing_mhz = gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        return _unseen_by_clock(gpu, wanted_mhz, held_mhz, gpu.achieved())
    if standing_mhz == wanted_mhz:
        return None
    raise _StandsError.at(wanted_mhz, standing_mhz or gpu.achieved().clock_mhz)


def _unseen_by_clock(gpu: Gpu, wanted_mhz: int | None, held_mhz: int | None, seen: Achieved) -> Unseen | None:
    highest_mhz = gpu.capabilities().default_clock_mhz
    reasons = seen.event_reasons & ~EventReason.APPLICATIONS_CLOCKS
    there = seen.clock_mhz >= highest_mhz if wanted_mhz is None else is_at(wanted_mhz, seen)
    if there and highest_mhz:
        return None
    if held_mhz is None:
        return Unseen(_why(reasons))
    left = not is_at(held_mhz, seen)
    if left and wanted_mhz is None and (not reasons or seen.clock_mhz > held_mhz):
        return None
    if left and gpu.load_pct() == 0:
        return Unseen("idle", moved=True)
    if not reasons:
        raise _StandsError.at(wanted_mhz, seen.clock_mhz)
    return Unseen(_why(reasons), moved=left)


def _why(reasons: EventReason) -> str:
    if reasons & EventReason.GPU_IDLE:
        return "idle"
    return "held down by power or heat" if reasons else "nobody knows where it stood before"


class _StandsError(DeviceError):
    """A clock that the driver took, and that is not in force."""

    @classmethod
    def at(cls, wanted_mhz: int | None, seen_mhz: int) -> _StandsError:
        wish = "the device's own choice" if wanted_mhz is None else f"{wanted_mhz} MHz"
        return cls(f"the driver took {wish} and still runs at {seen_mhz} MHz")


_BEGIN_S = 10.0  # what a killed guard left is put back so long, while the client waits for its answer
_LOOKS, _BETWEEN_LOOKS_S = 3, 0.05
_READ_S = 2.0  # with a driver that refuses to be read


class GpuClaim:
    """An ownership lock, a journal and a GPU: taken together, given back together.

    ``restore_clock_mhz`` is the clock that it has without a request, and at the end (``None``: the driver's
    own choice). ``locked_before_mhz`` is another one at which it looked locked before.
    """

    def __init__(
        self,
        gpu: Gpu,
        owner: str,
        *,
        backend: str = "nvml",
        patience_s: float = WAY_BACK_S,
        restore_clock_mhz: int | None = None,
    ) -> None:
        """Take the GPU; what a killed guard left is put right first.

        Raises:
            DeviceUnavailableError: another guard holds it.
            DevicePermissionError: no journal can be kept.
            DeviceUnsupportedError: the clock to put back is none of this GPU.
            DeviceError: what was left could not be put back.
        """
        self.gpu = gpu
        identity = gpu.identify()
        self.uuid = identity.uuid
        self._patience_s = patience_s
        self._last_mhz: int | None = None
        self._lock = OwnershipLock(self.uuid, owner)
        try:
            begin_s = min(_BEGIN_S, patience_s)
            left = put_back_left(gpu, self.uuid, for_s=begin_s)
            _check(gpu, self.uuid, restore_clock_mhz)
            self.remarks = () if left is None else left.remarks
            self.restore_clock_mhz = restore_clock_mhz
            locked_mhz = _looks_locked_mhz(gpu)
            self.locked_before_mhz = None if locked_mhz == restore_clock_mhz else locked_mhz
            self._journal = Journal(
                uuid=self.uuid,
                name=printable(identity.name)[:256],
                restore_clock_mhz=self.restore_clock_mhz,
                owner=printable(owner)[:256],
                pid=os.getpid(),
                boot_id=journal.boot_id(),
                backend=backend,
            )
            journal.write(self._journal)
            if locked_mhz != restore_clock_mhz:  # the baseline is measured where the job leaves it
                insist(self.restore, for_s=begin_s)
            self._journal_path = journal.path_of(self.uuid)
        except BaseException:
            self._lock.release()
            raise

    def lock_clock(self, clock_mhz: int) -> None:
        """Set a clock, never without a journal of it on disk.

        Raises:
            DeviceError: the driver refused, or the journal was removed and cannot be written again.
        """
        self.keep_journal()
        self._last_mhz = clock_mhz
        self.gpu.lock_clock(clock_mhz)

    def keep_journal(self) -> None:
        """See that the journal is there, and write it again if not.

        Raises:
            DevicePermissionError: it cannot be.

        Cost: 2 us where it is there.
        """
        if not self._journal_path.exists():
            self._journal.keep()

    def restore(self) -> None:
        """Ask once for the clock that the GPU has without a request.

        Raises:
            DeviceError: the driver refused.
        """
        apply_clock(self.gpu, self.restore_clock_mhz)

    def release(self) -> None:
        """Put the clock back and see that it is, then forget the journal, then free the lock; in that order.

        Raises:
            DeviceError: the clock could not be put back; the journal stays for the next start.
        """
        try:
            unseen = restore(
                self.gpu, self.restore_clock_mhz, for_s=self._patience_s, last_mhz=self._last_mhz
            )
            forget(self.uuid, unseen)
        finally:
            self._lock.release()


def _check(gpu: Gpu, uuid: str, restore_clock_mhz: int | None) -> None:
    able = gpu.capabilities()
    if restore_clock_mhz is not None and restore_clock_mhz not in able.clocks_mhz:
        raise DeviceUnsupportedError(
            f"restore_clock_mhz {restore_clock_mhz} is not a clock of {uuid}: it has {able.grid}"
        )


def _looks_locked_mhz(gpu: Gpu) -> int | None:
    """Look a few times, where the first look is not clear already."""
    try:
        return gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        samples: list[Achieved] = []
    idle = insist(gpu.load_pct, for_s=_READ_S) == 0
    for look in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS_S if look else 0)
        samples.append(insist(gpu.achieved, for_s=_READ_S))
        if apparent_lock_mhz(samples, gpu.capabilities(), idle=idle) is None:
            return None
    return samples[-1].clock_mhz


# How a guard reaches the GPU that it is to set, by the backend's name.

_ABSENT_S = 2.0

OpenGpu = Callable[[str, str], Gpu]  # (backend, uuid)

_KINDS: dict[str, Callable[[DeviceRequest], Gpu]] = {"nvml": NvmlGpu, "amdsmi": AmdGpu}


def open_gpu(backend: str, uuid: str) -> Gpu:
    """Open a GPU to set its clock.

    Raises:
        DeviceError: no such GPU, or no such backend.
    """
    kind = _KINDS.get(backend)
    if kind is None:
        raise DeviceUnsupportedError(f"a guard cannot set clocks through {backend!r}: {', '.join(_KINDS)}")
    return kind(DeviceRequest(backend, uuid=uuid))


@contextmanager
def opened_to_put_back(open_gpu: OpenGpu, backend: str, uuid: str) -> Iterator[Gpu]:
    """Open a GPU whose clock has to be put back, and close it even if the driver refuses to.

    Raises:
        DeviceAbsentError: the driver has reported for a while that there is no such GPU.
        DeviceError: it does not open, or lists no clocks, without which a lock cannot be recognised.
    """
    gpu = insist(
        lambda: open_gpu(backend, uuid),
        for_s=_ABSENT_S,
        passes=lambda error: isinstance(error, DeviceAbsentError),
    )
    try:
        if not gpu.capabilities().clocks_mhz:
            raise DeviceUnsupportedError(f"{uuid} lists no clocks")
        yield gpu
    finally:
        with contextlib.suppress(DeviceError):
            gpu.close()
