"""What plans cost: alone, and beside a straggler; the same accounting for every baseline and for ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from baselines.instance import Choices, Instance
from perseus_ds.errors import InfeasibleError


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """Iteration time and effective energy (sum of e - P_b t) of plans of one pipeline.

    Shape: vectors [plans], in the order given.
    Source: arXiv 2312.06902, equations 3 and 4.
    """

    time_s: NDArray[np.float64]
    effective_j: NDArray[np.float64]
    blocking_total_w: float

    @property
    def energy_j(self) -> NDArray[np.float64]:
        """Total energy of one pipeline, each plan over its own iteration time."""
        return self.effective_j + self.blocking_total_w * self.time_s

    def beside_j(self, until_s: float, *, tolerance: float = 1e-9) -> float:
        """Total energy of the best plan that ends by ``until_s``, and waits for the rest of it.

        Raises:
            InfeasibleError: no plan ends by then.
        """
        fits = self.time_s <= until_s * (1.0 + tolerance)
        if not fits.any():
            raise InfeasibleError(
                f"no plan ends by {until_s:.6g} s: the fastest takes {self.time_s.min():.6g} s",
                hint="allow it more time",
            )
        return float(self.effective_j[fits].min() + self.blocking_total_w * until_s)


def price(instance: Instance, choices: Choices) -> Priced:
    """Run every plan once.

    Shape: ``choices`` [plans, nodes].

    Raises:
        ValueError: ``choices`` has another shape, as one plan without its row.
    """
    if choices.shape[1:] != (len(instance.nodes),):
        raise ValueError(f"choices has the shape {choices.shape}, expected [plans, nodes]: use choices[None]")
    return Priced(
        time_s=np.array([instance.iteration_s(choice) for choice in choices]),
        effective_j=np.array([instance.effective_j(choice) for choice in choices]),
        blocking_total_w=instance.blocking_power_w * instance.schedule.ranks,
    )


def saving_pct(before_j: float, after_j: float) -> float:
    """Return the part of ``before_j`` that is saved."""
    return 100.0 * (1.0 - after_j / before_j)
