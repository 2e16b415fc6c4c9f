"""What a certificate states, in the same words everywhere: log, report, ``show``."""

from __future__ import annotations

import math


def certified(gap_pct: float) -> str:
    """Return how good a plan is, and in what world."""
    return f"{_proved(gap_pct)} for this profile"


def worth(slowdown_pct: float, saving_pct: float, gap_pct: float, within_pct: float | None = None) -> str:
    """State in one short line what a plan is worth, and how good it provably is.

    ``within_pct`` is half of the interval of the saving; None where nobody knows it.
    """
    slower = f"{slowdown_pct:+.2f} % time"
    speed = "same speed" if slower in {"+0.00 % time", "-0.00 % time"} else slower
    return f"{speed}, saves {saving_pct:.1f}{within(within_pct)} % ({_proved(gap_pct)})"


def within(pct: float | None) -> str:
    """Return half of an interval as it stands behind its figure, rounded up; nothing where it is unknown."""
    return "" if pct is None else f" +- {math.ceil(10.0 * pct - 1e-6) / 10.0:.1f}"


def _proved(gap_pct: float) -> str:
    """Rounded up, and never to nothing."""
    within = max(1.0, math.ceil(100.0 * gap_pct - 1e-6)) / 100.0
    return f"proved optimal within {within:.2f} %"
