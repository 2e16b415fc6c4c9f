"""Small pipelines of torch.distributed.pipelining, every schedule, in the fork harness."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, schedules

WIDTH = 8

SCHEDULES: Mapping[str, tuple[type, int, str]] = {
    "1F1B": (schedules.Schedule1F1B, 1, "loop"),
    "GPipe": (schedules.ScheduleGPipe, 1, "loop"),
    "Interleaved": (schedules.ScheduleInterleaved1F1B, 2, "loop"),
    "LoopedBFS": (schedules.ScheduleLoopedBFS, 2, "loop"),
    "InterleavedZeroBubble": (schedules.ScheduleInterleavedZeroBubble, 2, "loop"),
    "ZBV": (schedules.ScheduleZBVZeroBubble, 2, "v"),
    "DualPipeV": (schedules.ScheduleDualPipeV, 2, "v"),
}
"""Every schedule of torch 2.13: its class, the stages of each rank, and how they lie."""


class Layer(nn.Module):
    """A few multiplications."""

    def __init__(self, inner: int = WIDTH) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, inner)
        self.down = nn.Linear(inner, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)))


class Pipeline:
    """One rank's stages under one of torch's schedules, with an optimizer; alike in every run."""

    def __init__(
        self,
        name: str,
        microbatches: int,
        *,
        group: distributed.ProcessGroup | None = None,
        wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
        inner: Callable[[int], int] = lambda stage: WIDTH,
    ) -> None:
        kind, chunks, layout = SCHEDULES[name]
        rank, ranks = distributed.get_rank(group), distributed.get_world_size(group)
        held = {
            "loop": [rank + chunk * ranks for chunk in range(chunks)],
            "v": [rank, 2 * ranks - 1 - rank],
        }[layout]
        self.stages = [
            PipelineStage(
                wrap(self._layer(stage, inner(stage))),
                stage,
                ranks * chunks,
                torch.device("cpu"),
                group=group,
            )
            for stage in held
        ]
        self.schedule = kind(
            self.stages if chunks > 1 else self.stages[0], microbatches, loss_fn=nn.functional.mse_loss
        )
        self._optimizer = torch.optim.SGD(
            [p for stage in self.stages for p in stage.submod.parameters()], lr=0.01
        )
        self._data = torch.Generator().manual_seed(3)
        self._batch = 2 * microbatches

    @staticmethod
    def _layer(stage: int, inner: int) -> Layer:
        torch.manual_seed(100 + stage)
        return Layer(inner)

    def train(self) -> list[str]:
        """Run one step; the exact losses where this rank holds the last stage."""
        losses: list[torch.Tensor] = []
        inputs = torch.randn(self._batch, WIDTH, generator=self._data)
        self.schedule.step(*self._arguments(inputs), target=self._target(inputs), losses=losses)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return [float(loss).hex() for loss in losses]

    def evaluate(self) -> None:
        """Run one forward pass."""
        inputs = torch.randn(self._batch, WIDTH, generator=self._data)
        self.schedule.eval(*self._arguments(inputs), target=self._target(inputs))

    def weights(self) -> str:
        """Digest the exact bits of all weights of this rank."""
        digest = hashlib.sha256()
        for stage in self.stages:
            for parameter in stage.submod.parameters():
                whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
                digest.update(whole.detach().numpy().tobytes())
        return digest.hexdigest()

    def _arguments(self, inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (inputs,) if any(stage.is_first for stage in self.stages) else ()

    def _target(self, inputs: torch.Tensor) -> torch.Tensor | None:
        return torch.sin(inputs) if any(stage.is_last for stage in self.stages) else None


def calls_of(pipeline: Pipeline) -> list[str]:
    """Note every chunk that torch runs, by the arguments it passes: a witness that knows nothing of us."""
    ran: list[str] = []
    for stage in pipeline.stages:
        for method in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
            vars(stage)[method] = _noting(ran, stage, method)
    return ran


def _noting(ran: list[str], stage: Any, method: str) -> Callable[..., object]:  # noqa: ANN401
    original = getattr(stage, method)

    def noted(chunk: int, *args: object, **kwargs: object) -> object:
        letter = {"forward_one_chunk": "F", "backward_weight_one_chunk": "W"}.get(method)
        letter = letter or ("B" if kwargs.get("full_backward", True) else "I")
        ran.append(f"{stage.stage_index}{letter}{chunk}")
        return original(chunk, *args, **kwargs)

    return noted
