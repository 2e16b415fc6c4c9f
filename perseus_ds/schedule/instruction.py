"""One thing that one stage does once per iteration; prints as ``2F0``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from perseus_ds.errors import InvalidScheduleError

_TEXT = re.compile(r"(\d+)([A-Z]+)(\d+)", re.ASCII)


class Kind(Enum):
    """What an instruction does; the value is its letter in text and in files."""

    FORWARD = "F"
    BACKWARD = "B"
    LOAD = "L"
    SEND_ACTIVATION = "SA"
    RECV_ACTIVATION = "RA"
    SEND_GRAD = "SG"
    RECV_GRAD = "RG"
    REDUCE_TIED = "RT"
    REDUCE_GRADS = "AR"
    STEP = "OS"

    @property
    def is_computation(self) -> bool:
        """Whether its duration follows the clock, so that a plan chooses one for it."""
        return self in _COMPUTATIONS

    @property
    def is_transfer(self) -> bool:
        """Whether it is one end of a point-to-point transfer between neighbouring stages."""
        return self in _TRANSFERS


_KINDS = {kind.value: kind for kind in Kind}
_COMPUTATIONS = frozenset({Kind.FORWARD, Kind.BACKWARD})
_TRANSFERS = frozenset({Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION, Kind.SEND_GRAD, Kind.RECV_GRAD})


@dataclass(frozen=True, slots=True, order=False)
class Instruction:
    """The n-th run of ``kind`` on ``stage``: ``2F0`` is stage 2's forward of microbatch 0."""

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Instruction:
        """Read back what ``str`` printed.

        Raises:
            InvalidScheduleError: the text is not ``<stage><kind><microbatch>``.
        """
        match = _TEXT.fullmatch(text)
        if match is None or match[2] not in _KINDS:
            raise InvalidScheduleError(
                f"instruction {text!r} is not <stage><kind><microbatch> like 2F0",
                hint=f"kinds: {' '.join(_KINDS)}",
            )
        return cls(int(match[1]), _KINDS[match[2]], int(match[3]))
