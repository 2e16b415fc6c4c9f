"""One real pipeline of two stages with log-normal lengths, each iteration run by a plan of its own."""

from __future__ import annotations

import math
import sys

import pytest
from jobs import SURE
from varied_loads import BothWays, as_expected, both_ways

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> BothWays:
    return both_ways(tmp_path_factory.mktemp("followed"), replicas=1, steps=260)


def test_losses_are_those_without_it(followed: BothWays) -> None:
    assert [one.value for one in followed.with_it] == [one.value for one in followed.without]


def test_every_iteration_followed_its_loads(followed: BothWays) -> None:
    assert followed.answers["load_iterations"] >= 20
    assert followed.answers["followed_iterations"] == followed.answers["load_iterations"]
    assert not followed.events & {"disabled", "alone", "not_followed", "contradicted", "slower"}


def test_slack_between_unequal_microbatches_is_saved(followed: BothWays) -> None:
    without, with_it = followed.summaries
    for name in ("saving_pct", "slowdown_pct"):
        sys.stdout.write(
            f"\n{name}: {without[name]:.2f} +- {without[name.replace('_pct', '_se_pct')]:.2f}, following "
            f"{with_it[name]:.2f} +- {with_it[name.replace('_pct', '_se_pct')]:.2f}"
        )
    assert with_it["saving_pct"] > without["saving_pct"] + 3.0
    within = SURE * math.hypot(with_it["slowdown_se_pct"], without["slowdown_se_pct"])
    assert with_it["slowdown_pct"] <= without["slowdown_pct"] + 0.2 + within


def test_it_is_as_expected_with_and_without(followed: BothWays) -> None:
    for summary in followed.summaries:
        as_expected(summary)
