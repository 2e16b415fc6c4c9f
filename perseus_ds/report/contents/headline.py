"""What a report says first: one line that is true of exactly the numbers that are there."""

from __future__ import annotations

from perseus_ds.report.contents.figures import Figures, Saving
from perseus_ds.report.number import signed


def headline(found: Figures) -> str:
    """State the measured saving, else the predicted one, and say which of the two it is."""
    if found.measured is not None:
        how = "measured on a simulated GPU" if found.simulated else "measured"
        return f"{_in_words(found.measured)}, {how}"
    if found.predicted is not None:
        how = "predicted from a simulated GPU" if found.simulated else "predicted, not yet measured"
        return f"{_in_words(found.predicted)}, {how}"
    return "Profile of a simulated GPU" if found.simulated else "Profile"


def planned_headline(found: Figures) -> str:
    """State what the frontier's plan says of itself, whatever was measured."""
    if found.planned is None:
        return headline(found)
    where = ", simulated GPU" if found.simulated else ""
    return f"{_in_words(found.planned)}, as planned{where}"


def _in_words(saving: Saving) -> str:
    within = "" if saving.within_pct is None else f" \N{PLUS-MINUS SIGN} {saving.within_pct:.1f}"
    less = f"{abs(saving.saving_pct):.1f}{within} % {'less' if saving.saving_pct >= 0 else 'more'} energy"
    return f"{less} at {signed(saving.slowdown_pct, decimals=1)} % time"
