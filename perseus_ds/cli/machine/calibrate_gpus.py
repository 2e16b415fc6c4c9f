"""Time the clock changes of this machine's GPUs: only of those that nobody holds and nobody works on.

The clocks are set by a guard that has taken the GPU's lease, as in training. So a running job of
ours is refused with its name, and whatever befalls this command, the clocks are put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from perseus_ds.cli.machine.local_gpus import LocalGpus, SeenGpu
from perseus_ds.device import Calibration, DeviceRequest, Gpu, calibrate_together
from perseus_ds.device.choose import choose
from perseus_ds.device.guard import is_held
from perseus_ds.errors import DeviceError, DeviceUnavailableError


@dataclass(frozen=True, slots=True)
class Timed:
    """What came of one GPU; ``refusal`` is empty where ``calibration`` is there."""

    index: int
    calibration: Calibration | None
    refusal: str

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Report it in words."""
        found = self.calibration
        if found is None:
            yield f"not measured: {self.refusal}"
            return
        if found.idle:
            yield "not measured: it is idle and clocks down by itself; a job measures as it starts"
        elif found.unreached:
            yield f"{found.unreached} clocks were not reached: throttled, or set by somebody else"
        yield (
            f"measured: call {_ms(found.call_s)}, up {_ms(found.up_s)}, down {_ms(found.down_s)}, "
            f"all GPUs at once {_ms(found.together_s)}; counter every {_ms(found.counter_period_s)}"
        )


def calibrate_gpus(found: LocalGpus, backend: str) -> tuple[Timed, ...]:
    """Take every GPU that may be taken, measure them alone and all at once, and put them back.

    ``backend`` is the one that jobs would set clocks through.
    """
    refused: list[Timed] = []
    with ExitStack() as leases:
        taken: list[tuple[int, Gpu]] = []
        for seen in found.gpus:
            index = seen.identity.index
            try:
                _refuse_locked(seen)
                taken.append((index, leases.enter_context(_taken(index, backend))))
            except DeviceError as error:
                refused.append(Timed(index, None, str(error)))
        answers = calibrate_together([gpu for _, gpu in taken])
    measured = [_timed(index, answer) for (index, _), answer in zip(taken, answers, strict=True)]
    return tuple(sorted([*measured, *refused], key=lambda timed: timed.index))


def _refuse_locked(seen: SeenGpu) -> None:
    """Refuse a GPU that looks locked: to take it would remove an operator's lock.

    Raises:
        DeviceUnavailableError: it looks locked, and no job of ours holds it.
    """
    if seen.standing_mhz is not None and not is_held(seen.identity.uuid):
        raise DeviceUnavailableError(
            f"GPU {seen.identity.index} looks locked at {seen.standing_mhz} MHz, which measuring would remove"
        )


def _taken(index: int, backend: str) -> Gpu:
    """Take a GPU as a training job would, after seeing that nobody works on it, and before trusting that.

    Raises:
        DeviceError: no right to set clocks, another holder, or somebody works on it.
    """
    with choose(DeviceRequest("nvml", local_rank=index, lock=False)).gpu as reader:
        _refuse_busy(reader)
    gpu = choose(DeviceRequest(backend, local_rank=index)).gpu
    try:
        why_not = gpu.capabilities().why_not
        if why_not is not None:
            raise DeviceUnavailableError(why_not)
        _refuse_busy(gpu)
    except DeviceError:
        gpu.close()
        raise
    return gpu


def _refuse_busy(gpu: Gpu) -> None:
    busy = gpu.busy()
    if busy is not None:
        raise DeviceUnavailableError(f"GPU {gpu.identify().index} is in use: {busy}")


def _timed(index: int, answer: Calibration | DeviceError) -> Timed:
    if isinstance(answer, DeviceError):
        return Timed(index, None, str(answer))
    return Timed(index, answer, "")


def _ms(duration_s: float | None) -> str:
    return "unknown" if duration_s is None else f"{1e3 * duration_s:.3g} ms"
