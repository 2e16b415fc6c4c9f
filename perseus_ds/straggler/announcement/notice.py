"""One announcement: a pipeline will run slower from now on, by this much."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from perseus_ds.errors import PerseusError
from perseus_ds.files import parse_json
from perseus_ds.files.fields import line

_NAME = re.compile(r"pipeline_(0|[1-9][0-9]{0,8})\.json")
_KEYS = {"slowdown", "reason"}
MOST_SLOWDOWN = 1e6


@dataclass(frozen=True, slots=True)
class Notice:
    """``slowdown`` is 1.2 where an iteration takes 20 % longer; 1 ends what was announced before."""

    slowdown: float
    reason: str = ""

    def to_json(self) -> str:
        """Return the content of its file."""
        return (
            json.dumps({"slowdown": self.slowdown} | ({"reason": self.reason} if self.reason else {})) + "\n"
        )

    @classmethod
    def parse(cls, text: bytes) -> Notice:
        """Read the content of a file.

        Raises:
            PerseusError: what is wrong, without the file's name.
        """
        content = parse_json(text)
        if not isinstance(content, dict) or "slowdown" not in content:
            raise PerseusError('has no "slowdown"')
        unknown = sorted(content.keys() - _KEYS)
        if unknown:
            raise PerseusError(f"has an unknown key {unknown[0]!r:.40}")
        return cls(checked_slowdown(content["slowdown"]), line({"reason": "", **content}, "reason"))


def checked_slowdown(value: object) -> float:
    """Return a slowdown as a number.

    Raises:
        PerseusError: it is not a finite number from 1 to ``MOST_SLOWDOWN``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PerseusError(f"slowdown {value!r:.40} is not a number")
    try:
        slowdown = float(value)
    except OverflowError:
        slowdown = math.inf
    if not math.isfinite(slowdown):
        raise PerseusError(f"slowdown {slowdown} is not a finite number")
    if slowdown > MOST_SLOWDOWN:
        raise PerseusError(f"slowdown {slowdown:g} is above {MOST_SLOWDOWN:g}: nobody waits that long")
    if slowdown < 1.0:
        raise PerseusError(f"slowdown {slowdown:g} is below 1: 1.2 means an iteration takes 20 % longer")
    return slowdown


def file_name(pipeline: int) -> str:
    """Return the name of the file for one pipeline."""
    return f"pipeline_{pipeline}.json"


def pipeline_of(name: str) -> int | None:
    """Return which pipeline a file is for; None for any other file."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])
