"""Joules of one GPU: its energy counter, checked against its power, and replaced where it cannot be right."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from perseus_ds.device.gpu import Gpu

_CHECKED_S = 1.0
_LEAST, _MOST = 0.8, 1.25
_COMPARED_S = 15.0
_DIFFERS = 0.1
_AGREE = 3
_STILL, _STILL_LOOKS, _STILL_S = "stands still", 50, 4.0
_MOST_W = 20e3
"""No GPU, and no module, takes as much: a counter that moves faster has jumped."""
_STEPS, _STEPS_WITHIN_S = 3, 60.0


class EnergySource:
    """Reads joules: the counter's, or where that cannot be right the GPU's own power, integrated.

    On modules of CPU and GPU (GH200, GB200) the counter counts both. Instantaneous power is read beside it
    for a second at the start, and for as long as both differ up to three. A counter that differs by more than
    a quarter each time does not show this GPU's energy. One that agrees is compared for 15 s more: a
    difference of more than a tenth is reported, since nobody knows which of both is right.

    A counter that steps back or far ahead (a wrap, a driver loaded anew) begins anew: ``restarts`` counts
    that. One that steps again and again, or does not rise any more, is replaced by the power. A device that
    reports no power keeps its counter: ``useless`` states why nothing can be read from it.

    Units: joules, watts; a fraction for ``ratio``, counter over integrated power.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.integrates = False
        self.restarts = 0
        self.ratio: float | None = None
        self.useless = ""
        self._replaced = ""
        self._checking = True
        self._compares = False
        self._against = 0
        self._power: tuple[float, float] | None = None
        self._integrated_j = 0.0
        self._changed: tuple[float, float, float] | None = None
        self._counted_j: float | None = None
        self._read_s = 0.0
        self._rose: tuple[int, float] | None = None
        self._steps_s: deque[float] = deque(maxlen=_STEPS)

    def read(self) -> tuple[float, float]:
        """Read energy, and when; a new reading is not more than the last where nothing was counted.

        Raises:
            DeviceError: neither can be read.
        """
        changed = False
        if not self.integrates:
            changed = self._count()
        if self.integrates:
            return self._integrate(), self._integrated_j
        if self._checking:
            self._check(self._read_s, changed=changed)
        return self._read_s, self._counted_j or 0.0

    def _count(self) -> bool:
        """Read the counter; return whether it has moved."""
        before_j, counted_j, now_s = self._counted_j, self._gpu.energy_j(), self._gpu.now_s()
        if not math.isfinite(counted_j):
            counted_j = before_j or 0.0
        passed_s, self._counted_j, self._read_s = now_s - self._read_s, counted_j, now_s
        if before_j is not None and self._is_step(before_j, counted_j, passed_s):
            self._step(now_s)
        self._watch_for_rises(now_s, rose=before_j is not None and counted_j > before_j)
        return before_j is not None and counted_j != before_j

    def reasons(self) -> Iterator[str]:
        """Explain what is wrong with the counter, and why power is integrated instead where it is."""
        if self.useless:
            yield f"the energy counter {self.useless}, and no power is shown: energy is not measured"
        elif self.integrates:
            yield f"the energy counter {self._replaced}: the GPU's power is integrated instead"
        elif self._steps_s:
            yield "the energy counter stepped back, or far ahead: what was counted around that is left out"
        if self.integrates or self._compares or self.ratio is None or abs(self.ratio - 1.0) <= _DIFFERS:
            return
        yield (
            f"the energy counter counts {self.ratio:.2f} times what the GPU's power comes to: energies "
            "are as uncertain (perseus-ds doctor compares both)"
        )

    def _is_step(self, before_j: float, counted_j: float, passed_s: float) -> bool:
        """Whether it counted down, or more than any GPU takes."""
        return counted_j < before_j or counted_j - before_j > _MOST_W * max(passed_s, _CHECKED_S)

    def _step(self, now_s: float) -> None:
        """Begin anew; what steps again and again is no counter."""
        self._restart()
        self._steps_s.append(now_s)
        if len(self._steps_s) == _STEPS and now_s - self._steps_s[0] <= _STEPS_WITHIN_S:
            self._give_up("steps back, or far ahead, again and again")

    def _watch_for_rises(self, now_s: float, *, rose: bool) -> None:
        """Give up a counter that does not rise any more; take it up again once it does."""
        if rose or self._rose is None:
            self._rose = 0, now_s
            self.useless = "" if self.useless == _STILL else self.useless
            return
        looks, since_s = self._rose
        self._rose = looks + 1, since_s
        if looks >= _STILL_LOOKS and now_s - since_s >= _STILL_S and not self.useless:
            self._give_up(_STILL)

    def _give_up(self, why: str) -> None:
        """Replace the counter by the power, where that can be read; else it is of no use."""
        if self._power_w():
            self._replace(why)
        else:
            self.useless = why

    def _check(self, now_s: float, *, changed: bool) -> None:
        """Compare from change to change, so that no part of a period is counted on one side only."""
        self._integrate()
        if not (self._checking and changed):
            return
        here = now_s, self._integrated_j, self._counted_j or 0.0
        if self._changed is None:
            self._changed = here
        elif now_s - self._changed[0] >= (_COMPARED_S if self._compares else _CHECKED_S):
            spent_j = self._integrated_j - self._changed[1]
            ratio = (here[2] - self._changed[2]) / spent_j if spent_j > 0 else 1.0
            self._judge(ratio)
            self._changed = here

    def _judge(self, ratio: float) -> None:
        if self._compares or _LEAST <= ratio <= _MOST:
            self.ratio, self._checking = ratio, not self._compares
            self._compares = self._checking
            return
        self._against += 1
        if self._against == _AGREE:
            self.ratio = ratio
            self._replace(f"counts {ratio:.2g} times what this GPU takes (a module's counter, with its CPU?)")

    def _replace(self, why: str) -> None:
        self._checking, self.integrates, self._replaced = False, True, why
        self._power = None
        self._restart()

    def _restart(self) -> None:
        self.restarts += 1
        self._changed = None

    def _power_w(self) -> float | None:
        """The power of this instant; None where it cannot be read: what only checks ends nothing."""
        try:
            return self._gpu.power_w()
        except Exception:
            if self.integrates:
                raise
            return None

    def _integrate(self) -> float:
        """Add the mean of this reading and the last, for the time between."""
        power_w, now_s = self._power_w(), self._gpu.now_s()
        if power_w is None:
            self._checking = False
            return now_s
        if self._power is not None:
            before_s, before_w = self._power
            self._integrated_j += 0.5 * (power_w + before_w) * (now_s - before_s)
        self._power = now_s, power_w
        return now_s
