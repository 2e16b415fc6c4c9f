"""Which pair of clocks every kernel, instruction or pass should have: exact, with a certified gap."""

from perseus_ds.kernels.choose.choose import EDP, ChosenPairs, Goal, Scope, choose, confirm
from perseus_ds.kernels.choose.knapsack import solve_knapsack
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
    "second_costs",
    "smoothed",
    "solve_knapsack",
]
