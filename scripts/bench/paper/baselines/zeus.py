"""One setting for all stages, or one per stage: the baselines that the Perseus paper draws from Zeus.

Sources: You, Chung, Chowdhury, NSDI'23 (Zeus); arXiv 2312.06902, section 6.1 (ZeusGlobal, ZeusPerStage).
Readings: profiles hold clocks and no power limits; under a limit each computation runs at the highest clock
whose mean power does not exceed it, as a device under a limit does on average. Between two measured clocks
nothing is interpolated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from baselines.instance import Choices, Instance
from perseus_ds.schedule import Kind


def uniform_clock(instance: Instance) -> Choices:
    """Choose one clock for all stages; a plan per clock that all of them were measured at.

    Shape: [plans, nodes], highest clock first.
    """
    clocks = [set(instance.clock_mhz[row].tolist()) for row in _computed_rows(instance)]
    shared = sorted(set.intersection(*clocks), reverse=True)
    return np.array([_first(instance, instance.clock_mhz <= clock_mhz) for clock_mhz in shared])


def zeus_global(instance: Instance) -> Choices:
    """Choose one power limit for all stages; a plan per mean power that any computation has.

    Shape: [plans, nodes], highest limit first.
    """
    power_w = _power_w(instance)
    limits_w = np.unique(power_w[_computed_rows(instance)])[::-1]
    plans = np.array([_first(instance, power_w <= limit_w) for limit_w in limits_w])
    return np.unique(plans, axis=0)


def zeus_per_stage(instance: Instance) -> Choices:
    """Choose a clock per stage, so that all stages' forwards take alike.

    Every forward time of the slowest stage is a target; each stage takes its slowest clock that meets it.

    Shape: [plans, nodes], shortest target first.
    """
    forwards = {stage: row for row, (stage, kind) in enumerate(instance.rows) if kind is Kind.FORWARD}
    slowest = max(forwards.values(), key=lambda row: instance.time_s[row, 0])
    plans = []
    for target_s in np.unique(instance.time_s[slowest]):
        clock_mhz = {stage: _slowest_clock_mhz(instance, row, target_s) for stage, row in forwards.items()}
        limit = np.array([clock_mhz.get(stage, 0) for stage, _ in instance.rows])
        plans.append(_first(instance, instance.clock_mhz <= limit[:, None]))
    return np.array(plans)


def _slowest_clock_mhz(instance: Instance, row: int, target_s: float) -> int:
    fits = np.flatnonzero(instance.time_s[row] <= target_s)
    return int(instance.clock_mhz[row, fits].min()) if len(fits) else int(instance.clock_mhz[row, 0])


def _first(instance: Instance, allowed: NDArray[np.bool_]) -> Choices:
    """Every node's highest allowed clock; its lowest where none is."""
    chosen = np.where(allowed.any(axis=1), allowed.argmax(axis=1), instance.options - 1)
    choices: Choices = chosen[instance.row]
    return choices


def _power_w(instance: Instance) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(instance.time_s > 0.0, instance.energy_j / instance.time_s, 0.0)


def _computed_rows(instance: Instance) -> list[int]:
    return [row for row, (_, kind) in enumerate(instance.rows) if kind.is_computation]
