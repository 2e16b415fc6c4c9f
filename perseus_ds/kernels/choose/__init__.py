"""Which pair of clocks every kernel, instruction or pass should have: exact, with a certified gap."""

from perseus_ds.kernels.choose.choose import (
    EDP,
    ChosenPairs,
    Confirmed,
    Goal,
    Scope,
    choose,
    choose_at,
    confirm,
)
from perseus_ds.kernels.choose.knapsack import Picks, solve_knapsack
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
    "Confirmed",
    "CostTable",
    "Goal",
    "LaunchCosts",
    "Level",
    "Picks",
    "Scope",
    "choose",
    "choose_at",
    "confirm",
    "cost_table",
    "launch_costs",
    "second_costs",
    "smoothed",
    "solve_knapsack",
]
