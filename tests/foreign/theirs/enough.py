"""When a job of somebody else may stop, and what it leaves behind for the test: every loss, bit by bit."""

import json
import os
import time
from pathlib import Path

import torch
from torch import distributed

MOST_STEPS = 4000
MORE = 2
BREATH_S = 0.05  # beside which a plan is made: no model of anybody's has steps of milliseconds


class Enough:
    """Stops after the steps that the test names, else soon after the event that it names was seen."""

    def __init__(self) -> None:
        self.losses: list[str] = []
        self._steps = 0
        self._left = int(os.environ.get("FOREIGN_STEPS", MOST_STEPS))
        self._event, self._run_dir = os.environ.get("FOREIGN_UNTIL"), os.environ.get("FOREIGN_RUN_DIR", "")

    def note(self, loss: torch.Tensor | float) -> None:
        """Keep a loss to the last bit."""
        self.losses.append(float(loss).hex())

    def after_step(self) -> bool:
        """Whether this was the last step, on every rank alike."""
        self._steps += 1
        self._left -= 1
        if self._event is not None and self._happened():
            self._event, self._left = None, MORE
        if self._event is not None:
            time.sleep(BREATH_S)
        if self._left > 0:
            return False
        told = {"steps": self._steps, "losses": self.losses}
        Path(f"{os.environ['FOREIGN_OUT']}.{distributed.get_rank()}").write_text(json.dumps(told))
        return True

    def _happened(self) -> bool:
        file = Path(self._run_dir) / "events.jsonl"
        seen = distributed.get_rank() == 0 and file.exists() and f'"{self._event}"' in file.read_text()
        told = torch.tensor(int(seen))
        distributed.broadcast(told, 0)
        return bool(told)
