"""How long this job's GPUs take to change a clock, found out by its first iterations, under their own load.

An idle GPU clocks down by itself, and shows nothing: that is what a GPU before the first iteration is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from perseus_ds.device.clock_change import Steps, calibrating
from perseus_ds.device.gpu import Capabilities, Gpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.runtime.control.errands import Errand
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.phases import Ended, Phase
from perseus_ds.runtime.lifecycle.reckoning import Answer, joined

_ALONE_S = 0.4
_CHANGES = 8
_BEAT_S = 0.05
_AGAIN_S = 0.02
_ROUNDS = 3
_SILENT = DeviceUnavailableError("the driver did not answer in time")


class Errands(Protocol):
    """Whoever does steps at the device, off the training thread."""

    def run(self, errand: Errand) -> None:
        """Have it done; never blocks."""

    def stop(self, errand: Errand) -> None:
        """Have it end before its next step; never blocks."""


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Whose clock is measured, by whom, and who is informed what this rank reckons with from then on."""

    context: JobContext
    gpu: Gpu
    errands: Errands
    found: Callable[[Capabilities], None]

    def iterations(self, iteration_s: float, *, together: bool | None = None) -> int:
        """How many iterations it takes, alone, together or (None) both, if changes are as declared."""
        if together is None:
            all_at_once = self.iterations(iteration_s, together=True) if self.context.channel.size > 1 else 0
            return self.iterations(iteration_s, together=False) + all_at_once
        change_s = (self.context.capabilities.switch_latency_s or 0.0) + _BEAT_S * together
        return max(1, math.ceil(max(_ALONE_S, _CHANGES * change_s) / iteration_s))

    def phase(self, iteration_s: float, opens: Callable[[float], Phase]) -> Phase:
        """Begin, with what iterations take at default clocks; ``opens`` what follows, with the same."""
        return Calibrating(self, iteration_s, opens)


class Measurement:
    """One GPU's calibration in steps, again and again until it shows a latency; ``answer`` is the latest."""

    def __init__(self, gpu: Gpu, *, in_step: bool) -> None:
        self._gpu = gpu
        self._in_step = in_step
        self.answer: Answer = _SILENT
        self.done = False

    def steps(self) -> Steps[None]:
        """Measure; the GPU may do nothing just now, and work a moment later."""
        try:
            while not self.done:
                self.answer = yield from calibrating(self._gpu, in_step=self._in_step)
                self.done = self.answer.switch_latency_s is not None
                yield _AGAIN_S
        except DeviceError as error:
            self.answer, self.done = error, True


class Calibrating(Phase):
    """Measure rank 0's GPU alone, then all at once, while iterations run; then open with what was found.

    Calls of the GPUs of one node queue in the driver, so that a clock which all change at once comes later.
    ``together_s`` is the longest that any rank waited, and the latency that clocks are asked for ahead by.
    All ranks count the same iterations and exchange where they are after each round of them. A GPU that has
    shown nothing after a few is reckoned with as it declares, and so is a driver that hangs.

    Cost: about a second's iterations, which count for nothing; one exchange for each round.
    """

    def __init__(self, calibrator: Calibrator, iteration_s: float, opens: Callable[[float], Phase]) -> None:
        self._calibrator = calibrator
        self._channel = calibrator.context.channel
        self._iteration_s = iteration_s
        self._opens = opens
        self._alone: Answer | None = None
        self._measurement: Measurement | None = None
        self._errand: Errand | None = None
        self._begin_stage()

    def begins(self, index: int) -> None:  # noqa: ARG002  # whichever is the first of a stage
        """Begin to measure with the first iteration of a stage."""
        together = self._alone is not None
        if self._measurement is None and (together or self._channel.rank == 0):
            self._measurement = Measurement(self._calibrator.gpu, in_step=together)
            self._errand = Errand(self._measurement.steps())
            self._calibrator.errands.run(self._errand)

    def following(self, ended: Ended) -> Phase:
        """See at the end of each round how far all are."""
        self._iteration_s = min(self._iteration_s, ended.iteration_s or math.inf)
        self._left -= 1
        if self._left > 0:
            return self
        answers = self._answers()
        if self._rounds_left and not all(done for _, done in answers):
            self._begin_round()
            return self
        self.parted()
        if self._alone is None:
            self._alone = answers[0][0]
            if self._channel.size > 1:
                self._begin_stage()
                return self
        self._take_in(self._alone, [answer for answer, _ in answers])
        return self._opens(self._iteration_s)

    def parted(self) -> None:
        """Change no clock any more."""
        if self._errand is not None:
            self._calibrator.errands.stop(self._errand)

    def _answers(self) -> list[tuple[Answer, bool]]:
        """What those who measure have found by now, and whether that is all; collective."""
        mine = self._measurement and (self._measurement.answer, self._measurement.done)
        if self._alone is None:
            return [cast("tuple[Answer, bool]", self._channel.broadcast(mine))]
        return cast("list[tuple[Answer, bool]]", self._channel.gather(mine))

    def _begin_stage(self) -> None:
        self._measurement = self._errand = None
        self._rounds_left = _ROUNDS
        self._begin_round()

    def _begin_round(self) -> None:
        self._rounds_left -= 1
        self._left = self._calibrator.iterations(self._iteration_s, together=self._alone is not None)

    def _take_in(self, alone: Answer, everyone: Sequence[Answer]) -> None:
        context = self._calibrator.context
        able, found = joined(context.capabilities, alone, everyone, context.log)
        context.reckoning.able, context.reckoning.calibration = able, found
        self._calibrator.found(able)
