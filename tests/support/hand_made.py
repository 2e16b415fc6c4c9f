"""A frontier of three plans for two stages and one microbatch, small enough to check by hand."""

import numpy as np

from perseus_ds.plan import Baseline, Options, PlanSet
from perseus_ds.schedule import Kind, textbook

FORWARD = Options(np.array([1400, 1000]), np.array([1.0, 1.1]), np.array([220.0, 160.0]))
BACKWARD = Options(np.array([1400, 1000, 700]), np.array([2.0, 2.8, 4.0]), np.array([430.0, 400.0, 380.0]))


def hand_made() -> PlanSet:
    """Blocking power 50 W, so waiting costs 100 W in all.

    Columns of ``choice``: 0F0 0B0 1F0 1B0. Total energy: 1600, 1500 and 1550 J over 6, 7 and 9 s.
    """
    return PlanSet(
        fingerprint={"gpu": "A100", "stages": "2"},
        schedule=textbook("1f1b", stages=2, microbatches=1),
        blocking_power_w=50.0,
        options={
            (stage, kind): options
            for stage in (0, 1)
            for kind, options in ((Kind.FORWARD, FORWARD), (Kind.BACKWARD, BACKWARD))
        },
        fixed_s={},
        iteration_time_s=np.array([6.0, 7.0, 9.0]),
        effective_energy_j=np.array([1000.0, 800.0, 650.0]),
        lower_bound_j=np.array([1580.0, 1500.0, 1500.0]),
        effective_bound_j=np.array([980.0, 800.0, 600.0]),
        choice=np.array([[0, 0, 0, 0], [1, 0, 1, 1], [1, 2, 1, 1]], np.uint8),
        baseline=Baseline(iteration_time_s=6.0, energy_j=1600.0, blocking_power_w=50.0),
        t_min_s=6.0,
        t_star_s=9.0,
        solve_time_s=0.25,
    )


# A plan for two stages and one microbatch, and a profile-shaped set of options, small enough to read.

TWO_PLANS_FORWARD = Options(np.array([1400, 1000]), np.array([1.0, 1.4]), np.array([220.0, 180.0]))
TWO_PLANS_BACKWARD = Options(np.array([1400, 1000]), np.array([2.0, 2.8]), np.array([430.0, 400.0]))


def two_plans() -> PlanSet:
    """Two plans: everything at 1400 MHz in 6 s, everything but the first forward at 1000 MHz in 8 s."""
    return PlanSet(
        fingerprint={"gpu": "A100", "stages": "2", "microbatches": "1"},
        schedule=textbook("1f1b", stages=2, microbatches=1),
        blocking_power_w=50.0,
        options={
            (stage, kind): options
            for stage in (0, 1)
            for kind, options in ((Kind.FORWARD, TWO_PLANS_FORWARD), (Kind.BACKWARD, TWO_PLANS_BACKWARD))
        },
        fixed_s={},
        iteration_time_s=np.array([6.0, 8.0]),
        effective_energy_j=np.array([1000.0, 800.0]),
        lower_bound_j=np.array([1590.0, 1590.0]),
        effective_bound_j=np.array([990.0, 790.0]),
        choice=np.array([[0, 0, 0, 0], [0, 1, 1, 1]], np.uint8),
        baseline=Baseline(iteration_time_s=6.0, energy_j=1600.0, blocking_power_w=50.0),
        t_min_s=6.0,
        t_star_s=8.0,
        solve_time_s=0.1,
    )
