"""One ceiling on a job's power, as an operator or a site's controller writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast, get_args

from perseus_ds.errors import PerseusError
from perseus_ds.files import parse_json
from perseus_ds.files.fields import line, only, real

Per = Literal["pipeline", "job"]

MOST_W = 1e9
_LEAST_W = 1e-3
_MOST_TIME_S = 1e11
_KEYS = frozenset({"power_cap_w", "per", "from", "until", "ramp_w_per_s", "reason"})


@dataclass(frozen=True, slots=True)
class PowerCap:
    """Mean power that each pipeline, or the job, may take; ``power_cap_w`` None lifts what held before.

    ``start_s`` and ``until_s`` are seconds since 1970 (None: at once, for ever). ``ramp_w_per_s`` is how fast
    power may change on the way there and back; 0 is at once.
    """

    power_cap_w: float | None
    per: Per = "pipeline"
    start_s: float | None = None
    until_s: float | None = None
    ramp_w_per_s: float = 0.0
    reason: str = ""

    def to_json(self) -> str:
        """Return the content of its file, or one line on a socket."""
        content = {
            "power_cap_w": self.power_cap_w,
            "per": self.per,
            "from": self.start_s,
            "until": self.until_s,
            "ramp_w_per_s": self.ramp_w_per_s or None,
            "reason": self.reason or None,
        }
        given = {key: value for key, value in content.items() if value is not None or key == "power_cap_w"}
        return json.dumps(given) + "\n"

    @classmethod
    def parse(cls, text: bytes) -> PowerCap:
        """Read the content of a file, or a line of a socket.

        Raises:
            PerseusError: what is wrong, without the file's name.
        """
        content = parse_json(text)
        if not isinstance(content, dict) or "power_cap_w" not in content:
            raise PerseusError('has no "power_cap_w"')
        only(content, _KEYS)
        watts = content["power_cap_w"]
        return cls(
            None if watts is None else real(content, "power_cap_w", least=_LEAST_W, most=MOST_W),
            per_of(content.get("per", "pipeline")),
            _moment_s(content, "from"),
            _moment_s(content, "until"),
            real({"ramp_w_per_s": 0, **content}, "ramp_w_per_s", least=0.0, most=MOST_W),
            line({"reason": "", **content}, "reason"),
        )


def per_of(word: object) -> Per:
    """Return what a ceiling is for.

    Raises:
        PerseusError: nothing of the kind.
    """
    if word not in get_args(Per):
        raise PerseusError(f"per is {word!r:.40}", hint=f"expected one of {', '.join(get_args(Per))}")
    return cast("Per", word)


def _moment_s(content: Mapping[str, object], key: str) -> float | None:
    """Read seconds since 1970, or ISO 8601 with its time zone."""
    value = content.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        return real(content, key, least=0.0, most=_MOST_TIME_S)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise PerseusError(
            f"{key} is {value!r:.40}",
            hint="expected a time like 2030-01-31T18:00:00+01:00, or seconds since 1970",
        )
    return moment.timestamp()
