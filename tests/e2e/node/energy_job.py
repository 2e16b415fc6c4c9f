"""A job of one rank that trains until it is killed: ``energy_job.py RUN_DIR TRUTH``.

What its GPU truly took stands in TRUTH, written anew after each instruction.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lone_job import Loop, alone, begun, block_of

from perseus_ds.device.simulated import opened


def main(run_dir: Path, truth: Path) -> None:
    """Train; an instruction and its line of truth are what a kill may divide."""
    with alone(truth.with_suffix(".store")):
        loop = Loop()
        begun(loop, block_of(run_dir, metrics={"enabled": True}))
        start_j = opened()[-1].true_now().energy_j
        line = os.open(truth, os.O_WRONLY | os.O_CREAT)

        def note() -> None:
            os.pwrite(line, b"%20.6f\n" % (opened()[-1].true_now().energy_j - start_j), 0)

        loop.look = note
        while True:
            loop.step()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
