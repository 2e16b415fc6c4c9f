"""A plan that corrects itself in a whole job: the same losses, and the saving that was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from corrected_jobs import course, is_as_expected
from jobs import happened, plain_losses, train_until
from ranks import config, run_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_a_job_with_feedback_trains_as_without_us_and_saves_what_it_expects(tmp_path: Path) -> None:
    said = run_ranks(4, train_until, config(perseus=course(tmp_path)), 4, happened("measured"))
    ours = [one.value.losses for one in said]
    assert ours == plain_losses(len(ours[0]))
    is_as_expected(tmp_path)
