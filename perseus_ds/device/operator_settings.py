"""What operators and their tools have set of a GPU's power and clocks, and how two readings differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

FIELDS = ("power_limit", "application_clock", "power_smoothing", "power_profiles")
"""What `OperatorSettings.fields` may name."""

_LEAST_W = 1.0


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """One reading of a device; ``None``: its driver does not state it.

    ``limit_w`` is the power limit in force, the least of the user's, the board's and the module's.
    ``ceiling_mhz`` is the application clock, or a customer's boost, where somebody has set one, else 0.
    ``smoothing`` is power smoothing in words, ``profiles`` are the workload power profiles in force.
    """

    limit_w: float | None = None
    default_limit_w: float | None = None
    ceiling_mhz: int | None = None
    smoothing: str | None = None
    profiles: tuple[int, ...] | None = None

    def fields(self) -> dict[str, str]:
        """Name what is stated, as fingerprints have it: watts without fractions, so that they stay alike."""
        found = {}
        if self.limit_w is not None:
            found["power_limit"] = f"{self.limit_w:.0f} W"
        if self.ceiling_mhz is not None:
            found["application_clock"] = f"{self.ceiling_mhz} MHz" if self.ceiling_mhz else "default"
        if self.smoothing is not None:
            found["power_smoothing"] = self.smoothing
        if self.profiles is not None:
            found["power_profiles"] = _listed(self.profiles) or "none"
        return found

    def unusual(self) -> Iterator[str]:
        """Return in words each setting that is not a GPU's own default."""
        usual_w = self.default_limit_w
        if self.limit_w is not None and usual_w is not None and abs(self.limit_w - usual_w) >= _LEAST_W:
            yield f"power limit {self.limit_w:.0f} W instead of {usual_w:.0f} W"
        if self.ceiling_mhz:
            yield f"application clock or customer boost {self.ceiling_mhz} MHz"
        if self.smoothing not in {None, "off"}:
            yield f"power smoothing {self.smoothing}"
        if self.profiles:
            yield f"workload power profile {_listed(self.profiles)}"


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return field and words for each that both readings state, and differently."""
    for name in FIELDS:
        if name in before and name in now and before[name] != now[name]:
            yield name, f"{before[name]} before, {now[name]} now"


def _listed(profiles: tuple[int, ...]) -> str:
    return ", ".join(map(str, profiles))
