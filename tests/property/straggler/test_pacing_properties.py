"""What holds whatever replicas report: nobody is paced beyond the longest, and all ranks answer alike."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stragglers import index

from perseus_ds.straggler.replica_plans import ReplicaPlans

REPLICAS = 5
weird = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0])
reports = st.lists(st.floats(0.1, 5.0) | weird, min_size=REPLICAS, max_size=REPLICAS).map(np.array)
errors = st.floats(0.001, 0.3) | weird


@settings(max_examples=60)
@given(reports, errors)
def test_nobody_is_paced_beyond_the_longest(reported: np.ndarray, error: float) -> None:
    """What is run at the chosen plan ends no later than the longest does at full speed."""
    plans = ReplicaPlans(index(), REPLICAS, forecast_error=error)
    plans.will_run(0)
    plans.pace(0, reported)
    stretch = index().predicted_s(np.array(plans.plans)) / index().objective_s
    known = np.isfinite(reported) & (reported > 0.0)
    assert (stretch[~known] == 1.0).all()
    if known.any():
        assert (reported[known] * stretch[known]).max() <= reported[known].max() * (1.0 + 1e-9)
