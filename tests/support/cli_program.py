"""A small profile in the Zeus format, and what a call of the program leaves."""

from collections.abc import Callable
from dataclasses import dataclass

CSV = """stage,instruction,frequency,time,energy
0,forward,1400,0.05,15
0,forward,1200,0.055,12
0,forward,1000,0.065,11
0,backward,1400,0.10,30
0,backward,1200,0.11,24
0,backward,1000,0.13,22
1,forward,1400,0.06,18
1,forward,1200,0.066,14.4
1,forward,1000,0.078,13
1,backward,1400,0.12,36
1,backward,1200,0.132,29
1,backward,1000,0.156,26
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call of the program left."""

    code: int
    out: str
    err: str


Program = Callable[..., Answer]
