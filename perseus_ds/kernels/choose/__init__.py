"""Which pair of clocks every kernel, instruction or pass should have: exact, with a certified gap."""

from perseus_ds.kernels.choose.choose import EDP, GAP, ChosenPairs, Goal, Scope, choose, confirm, least_energy
from perseus_ds.kernels.choose.smooth import smoothed
from perseus_ds.kernels.choose.table import (
    CostTable,
    LaunchCosts,
    Level,
    cost_table,
    launch_costs,
    second_costs,
)

__all__ = [
    "EDP",
    "GAP",
    "ChosenPairs",
    "CostTable",
    "Goal",
    "LaunchCosts",
    "Level",
    "Scope",
    "choose",
    "confirm",
    "cost_table",
    "launch_costs",
    "least_energy",
    "second_costs",
    "smoothed",
]
