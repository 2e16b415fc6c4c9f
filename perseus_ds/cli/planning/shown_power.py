"""What ``perseus-ds show PLAN --power`` prints: power, slowdown and energy of every plan."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields

from perseus_ds.cli.output import DONE, say
from perseus_ds.plan import PlanSet, read_plans
from perseus_ds.plan.power import PowerPoint, power_table

_ROWS = 24
"""A table on a screen shows so many points, evenly spread; CSV and JSON have all."""


def show_power(options: argparse.Namespace) -> int:
    """Print the frontier as power against time."""
    plans = read_plans(options.plan)
    table = power_table(plans)
    if options.format == "csv":
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow([field.name for field in fields(PowerPoint)])
        rows.writerows([*asdict(point).values()] for point in table)
    elif options.format == "json":
        say(json.dumps(_as_json(plans, table), indent=1))
    else:
        say(_table(plans, table))
    return DONE


def _as_json(plans: PlanSet, table: Sequence[PowerPoint]) -> dict[str, object]:
    baseline = plans.baseline
    return {
        "of": "one pipeline",
        "gpus": plans.schedule.ranks,
        "default": {
            "power_w": baseline.energy_j / baseline.iteration_time_s,
            "iteration_time_s": baseline.iteration_time_s,
            "energy_j": baseline.energy_j,
        },
        "power_s_table": [asdict(point) for point in table],
    }


def _table(plans: PlanSet, table: Sequence[PowerPoint]) -> str:
    baseline = plans.baseline
    step = max(1, -(-(len(table) - 1) // (_ROWS - 1))) if len(table) > 1 else 1
    shown = [*table[:-1:step], table[-1]]
    at_default = f"{baseline.energy_j / baseline.iteration_time_s:.5g} W, {baseline.iteration_time_s:.4g} s"
    head = f"{'power, W':>10} {'slower, %':>10} {'s/iteration':>12} {'J/iteration':>12} {'saved, %':>9}"
    return "\n".join(
        [
            f"one pipeline of {plans.schedule.ranks} GPUs; at default clocks {at_default}",
            f"{head} {'swing within 1 s, W':>20}",
            *(
                f"{one.power_w:10.0f} {one.slowdown_pct:+10.2f} {one.iteration_time_s:12.5g} "
                f"{one.energy_j:12.5g} {one.saving_pct:9.1f} {one.swing_w:20.0f}"
                for one in shown
            ),
        ]
    )
