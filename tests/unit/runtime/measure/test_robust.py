"""A mean that hiccups do not move, and an error that covers the truth as often as it says."""

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from perseus_ds.runtime.accounting import robust_mean


def test_a_hiccup_does_not_move_it() -> None:
    assert robust_mean([1.0] * 9 + [30.0]).mean == 1.0
    assert robust_mean([2.0]).mean == 2.0
    assert robust_mean([]).mean == 0.0


def test_values_that_share_an_error_count_as_one() -> None:
    """Of 16 values each four are alike: as the means of the four groups, of which the middle two are kept."""
    groups = [1.0, 2.0, 4.0, 5.0]
    alike = robust_mean([one for one in groups for _ in range(4)], alike=4.0)
    each = robust_mean(groups)
    assert (alike.mean, alike.se, alike.freedom) == pytest.approx((each.mean, each.se, each.freedom))


def test_a_single_value_has_no_error() -> None:
    assert robust_mean([2.0]).freedom == 0
    assert math.isinf(robust_mean([2.0]).se)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [6, 10, 40])
def test_the_error_covers_the_truth_as_often_as_it_says(count: int) -> None:
    random = np.random.default_rng(count)
    found = [robust_mean(list(random.normal(10.0, 2.0, count))) for _ in range(2000)]
    within = [abs(one.mean - 10.0) <= stdtrit(one.freedom, 0.975) * one.se for one in found]
    assert 0.93 <= np.mean(within) <= 0.985


def test_the_error_of_eight_values_by_hand() -> None:
    """The middle four are 3 to 6; drawn in, the eight are 3 3 3 4 5 6 6 6, 14 squared about 4.5."""
    found = robust_mean([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert found.mean == 4.5
    assert found.se == pytest.approx(math.sqrt(14.0 / (4 * 3)))
    assert found.freedom == 3
