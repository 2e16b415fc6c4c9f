"""What curves are explained by: measured points alone, whatever stands at the clocks between them."""

from __future__ import annotations

import numpy as np
import pytest

from perseus_ds.profile.curves import (
    UNKNOWN,
    MeasuredCurve,
    posterior,
    power_basis,
)

PLACE = np.linspace(0.5, 1.0, 13)
MEASURED = [0, 4, 7, 10, 12]
DISCREPANCIES = {(0.0, 0.0): 0.3, (0.003, 0.0): 0.5, (0.01, 0.003): 0.2}


def curve(made_up: float, *, share: float = 0.01) -> MeasuredCurve:
    """Power over the clock; what was not measured stands at a number of its own."""
    values = 0.4 + 0.5 * PLACE + np.where(PLACE > 0.7, (PLACE - 0.7) ** 2, 0.0)
    values[[at for at in range(len(PLACE)) if at not in MEASURED]] = made_up
    errors = UNKNOWN * np.abs(values)
    errors[MEASURED] = share * values[MEASURED]
    return MeasuredCurve(PLACE, values, errors)


def test_a_prediction_comes_from_measured_points_and_is_less_sure_between_them() -> None:
    ways, whole = power_basis(PLACE), curve(0.8)
    known = posterior([(ways, DISCREPANCIES)], whole)
    assert known.mean == pytest.approx(posterior([(ways, DISCREPANCIES)], curve(1.1)).mean, abs=1e-9)
    truth = 0.4 + 0.5 * PLACE + np.where(PLACE > 0.7, (PLACE - 0.7) ** 2, 0.0)
    sure = np.sqrt(np.diag(known.covariance))
    assert np.all(np.abs(known.mean - truth) < 3.0 * sure)
    assert sure[2] > sure[0]
    assert sure.max() < 0.02
