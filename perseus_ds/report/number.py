"""Numbers as a reader wants them: a few digits, never an exponent."""

from __future__ import annotations

import math


def short(value: float, *, digits: int = 4) -> str:
    """Round to ``digits`` digits, but not before the decimal point: 0.01235, 12.35, 17207."""
    whole = 1 + math.floor(math.log10(abs(value))) if value else 1
    return f"{value:.{max(0, digits - whole)}f}"


def count(number: int, noun: str, plural: str = "s") -> str:
    """Write a number of things: 1 stage, 4 microbatches."""
    return f"{number} {noun}{'' if number == 1 else plural}"


def signed(value: float, *, decimals: int) -> str:
    """Write with a sign, but never a zero below zero: +1.37, -12.0, +0.0."""
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"
