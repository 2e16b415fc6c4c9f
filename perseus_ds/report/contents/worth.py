"""What a measured saving is worth: joules, kilowatt-hours, and with prices money and CO2."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perseus_ds.errors import ConfigError
from perseus_ds.run_directory import Summary

_DAY_S = 86_400.0
_J_PER_KWH = 3.6e6
KEYS = ("price_per_kwh", "gco2_per_kwh", "pue")


@dataclass(frozen=True, slots=True)
class EnergyPrices:
    """What a kilowatt-hour costs and emits, and what the building takes for each that GPUs take.

    Raises:
        ConfigError: a number that is not finite, below 0, or a power usage effectiveness below 1.
    """

    price_per_kwh: float | None = None
    gco2_per_kwh: float | None = None
    pue: float | None = None

    def __post_init__(self) -> None:
        for key, least in (("price_per_kwh", 0.0), ("gco2_per_kwh", 0.0), ("pue", 1.0)):
            value = getattr(self, key)
            if value is not None and not (math.isfinite(value) and value >= least):
                raise ConfigError(f"{key} is {value}", hint=f"expected a number from {least:g} on")


@dataclass(frozen=True, slots=True)
class Worth:
    """The whole job's saving per iteration and per day of training at its present pace; None: no price."""

    per_iteration_j: float
    per_day_kwh: float
    per_day_money: float | None
    per_day_kgco2: float | None


def worth(summary: Summary, prices: EnergyPrices) -> Worth:
    """Count what GPUs save, times what the building takes with them."""
    saved_j = summary.baseline.energy_j - summary.perseus.energy_j
    per_day_kwh = (prices.pue or 1.0) * saved_j * _DAY_S / summary.perseus.iteration_time_s / _J_PER_KWH
    money, grams = prices.price_per_kwh, prices.gco2_per_kwh
    return Worth(
        per_iteration_j=saved_j,
        per_day_kwh=per_day_kwh,
        per_day_money=None if money is None else money * per_day_kwh,
        per_day_kgco2=None if grams is None else grams * per_day_kwh / 1000.0,
    )
