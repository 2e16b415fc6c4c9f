"""Megatron-LM's own TensorBoard and Weights & Biases writers, where its training script runs.

Source: megatron/training/{global_vars,training}.py @ core_r0.16.0, which names both scalars.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self

_SCRIPT = "megatron.training.global_vars"
_NAMES = {"rank0_energy_per_iteration_j": "iter-energy/gpu", "rank0_power_w": "power/gpu"}


class _Board(Protocol):
    def add_scalar(self, name: str, value: float, iteration: int) -> None: ...


class _Log(Protocol):
    def log(self, values: Mapping[str, float], iteration: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Writers:
    """Writers of this rank (the script makes them on the last one), and how often they are written to."""

    board: _Board | None
    log: _Log | None
    every: int
    iteration: Callable[[], int]

    @classmethod
    def found(cls) -> Self | None:
        """Look for them; None where there are none, or Megatron's energy monitor writes (--log-energy)."""
        script = sys.modules.get(_SCRIPT)
        try:
            arguments = getattr(script, "get_args")()  # noqa: B009  # another release's names end nothing
            board = getattr(script, "get_tensorboard_writer")()  # noqa: B009
            log = getattr(script, "get_wandb_writer")()  # noqa: B009
        except (AttributeError, AssertionError):
            return None
        if (board is None and log is None) or getattr(arguments, "log_energy", False):
            return None
        every = getattr(arguments, "tensorboard_log_interval", None) or 1
        return cls(board, log, int(every), lambda: int(getattr(arguments, "curr_iteration", 0) or 0))

    def write(self, scalars: Mapping[str, float]) -> None:
        """Write what this rank's GPU took, under Megatron's names."""
        values = {name: scalars[ours] for ours, name in _NAMES.items() if ours in scalars}
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, self.iteration())
        if self.log is not None and values:
            self.log.log(values, self.iteration())
