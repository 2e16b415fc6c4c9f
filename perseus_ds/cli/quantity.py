"""Numbers and words on the command line: read strictly, refused in words."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Literal

from perseus_ds.config import AUTOMATIC, auto_of, literals_of, shown
from perseus_ds.errors import ConfigError


def positive(text: str) -> float:
    """Read a finite number above 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def not_negative(text: str) -> float:
    """Read a finite number from 0 on."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def not_negative_or_auto(text: str) -> float | Literal["auto"]:
    """Read a finite number from 0 on, or the word ``automatic``."""
    try:
        return "auto" if text in {"auto", AUTOMATIC} else not_negative(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error} (or {AUTOMATIC})") from None


def one_of(setting: object) -> Callable[[str], str]:
    """Make the reader of a flag that takes the words of a setting, "automatic" for "auto"."""

    def word(text: str) -> str:
        if auto_of(text) not in literals_of(setting):
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {words_of(setting)}")
        return str(auto_of(text))

    return word


def words_of(setting: object) -> str:
    """The words that such a flag takes, for its help."""
    return "{" + ",".join(shown(str(word)) for word in literals_of(setting)) + "}"


def count(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def index(text: str) -> int:
    """Read a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def refuse_idle(remedy: str, **flags: object) -> None:
    """Refuse flags that would do nothing as the others are; one that was not given is None or False.

    Raises:
        ConfigError: naming the first of them.
    """
    for name, value in flags.items():
        if value is not None and value is not False:
            raise ConfigError(f"--{name.replace('_', '-')} would have no effect", hint=remedy)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def waiting_powers(text: str) -> dict[int, float]:
    """Parse ``1410:85.4,300:56.4``: power in watts of a waiting GPU by clock in MHz."""
    powers: dict[int, float] = {}
    for pair in text.split(","):
        clock, colon, power = pair.partition(":")
        if not colon or not clock.strip().isdecimal() or int(clock) in powers:
            raise argparse.ArgumentTypeError(f"{pair!r} is not MHZ:W, each clock once")
        powers[int(clock)] = not_negative(power)
    return powers
