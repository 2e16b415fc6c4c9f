"""Joules of one GPU: its energy counter, checked against its power, and replaced where it counts more."""

from __future__ import annotations

from perseus_ds.device import Gpu

_CHECKED_S = 1.0
_LEAST, _MOST = 0.8, 1.25
_COMPARED_S = 15.0
_DIFFERS = 0.1
_AGREE = 3


class EnergySource:
    """Reads joules: the counter's, or where that cannot be right the GPU's own power, integrated.

    On modules of CPU and GPU (GH200, GB200) the counter counts both. Instantaneous power is read beside it
    for a second at the start, and for as long as both differ up to three. A counter that differs by more than
    a quarter each time, or stands still, does not show this GPU's energy. One that agrees is compared for
    15 s more: a difference of more than a tenth is reported, since nobody knows which of both is right. A
    device that reports no power keeps its counter. A counter that steps back (a wrap, a driver loaded anew)
    begins anew: ``restarts`` counts that.

    Units: joules, watts; a fraction for ``ratio``, counter over integrated power.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.integrates = False
        self.restarts = 0
        self.ratio: float | None = None
        self._checking = True
        self._compares = False
        self._against = 0
        self._power: tuple[float, float] | None = None
        self._integrated_j = 0.0
        self._begun: tuple[float, float, float] | None = None
        self._changed: tuple[float, float, float] | None = None
        self._counted_j: float | None = None

    def read(self) -> tuple[float, float]:
        """Read energy, and when; a new reading is not more than the last where nothing was counted.

        Raises:
            DeviceError: neither can be read.
        """
        if self.integrates:
            now_s = self._integrate()
            return now_s, self._integrated_j
        counted_j, now_s = self._gpu.energy_j(), self._gpu.now_s()
        if self._counted_j is not None and counted_j < self._counted_j:
            self._restart()
        changed = self._counted_j is not None and counted_j != self._counted_j
        self._counted_j = counted_j
        if self._checking:
            self._check(now_s, changed=changed)
        return now_s, counted_j

    @property
    def reason(self) -> str:
        """Explain why power is integrated instead; empty where the counter is read."""
        if not self.integrates:
            if self._compares or self.ratio is None or abs(self.ratio - 1.0) <= _DIFFERS:
                return ""
            return (
                f"the energy counter counts {self.ratio:.2f} times what the GPU's power comes to: energies "
                "are as uncertain (perseus-ds doctor --first-hour compares both at three loads)"
            )
        if self.ratio is None:
            return "the energy counter stands still: the GPU's power is integrated instead"
        return (
            f"the energy counter counts {self.ratio:.2g} times what this GPU takes (a module's counter, with "
            "its CPU?): the GPU's power is integrated instead"
        )

    def _check(self, now_s: float, *, changed: bool) -> None:
        """Compare from change to change, so that no part of a period is counted on one side only."""
        at_s = self._integrate()
        if not self._checking:
            return
        if self._begun is None:
            self._begun = at_s, self._integrated_j, self._counted_j or 0.0
        if changed:
            here = now_s, self._integrated_j, self._counted_j or 0.0
            if self._changed is None:
                self._changed = here
            elif now_s - self._changed[0] >= (_COMPARED_S if self._compares else _CHECKED_S):
                spent_j = self._integrated_j - self._changed[1]
                ratio = (here[2] - self._changed[2]) / spent_j if spent_j > 0 else 1.0
                self._judge(ratio)
                self._changed = here
        elif self._changed is None and at_s - self._begun[0] >= _AGREE * _CHECKED_S:
            self._replace(None, worth_j=self._integrated_j - self._begun[1])

    def _judge(self, ratio: float) -> None:
        if self._compares or _LEAST <= ratio <= _MOST:
            self.ratio, self._checking = ratio, not self._compares
            self._compares = self._checking
            return
        self._against += 1
        if self._against == _AGREE:
            self._replace(ratio, worth_j=1.0)

    def _replace(self, ratio: float | None, *, worth_j: float) -> None:
        self._checking = False
        if worth_j > 0:
            self.ratio, self.integrates = ratio, True
            self._restart()

    def _restart(self) -> None:
        self.restarts += 1
        self._changed = self._begun = None

    def _integrate(self) -> float:
        """Add the mean of this reading and the last, for the time between."""
        try:
            power_w = self._gpu.power_w()
        except Exception:
            if self.integrates:
                raise
            power_w = None  # a reading that only checks ends nothing
        now_s = self._gpu.now_s()
        if power_w is None:
            self._checking = False
            return now_s
        if self._power is not None:
            before_s, before_w = self._power
            self._integrated_j += 0.5 * (power_w + before_w) * (now_s - before_s)
        self._power = now_s, power_w
        return now_s
