"""What a certificate says, in the same words everywhere: log, report, ``show``."""

from __future__ import annotations


def certified(gap_pct: float) -> str:
    """Say how good a plan is, and in what world."""
    return f"provably within {max(0.0, gap_pct):.3f} % of optimal for this profile"
