"""Small pipelines of torch.distributed.pipelining, every schedule, in the fork harness."""

import hashlib
import threading
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
        at_once: bool = False,
    ) -> None:
        kind, chunks, layout = SCHEDULES[name]
        rank, ranks = distributed.get_rank(group), distributed.get_world_size(group)
        loop, cpu = [rank + chunk * ranks for chunk in range(chunks)], torch.device("cpu")
        self.stages = [
            PipelineStage(wrap(self._layer(stage, inner(stage))), stage, ranks * chunks, cpu, group=group)
            for stage in (loop if layout == "loop" else [rank, 2 * ranks - 1 - rank])
        ]
        own = self.stages if chunks > 1 else self.stages[0]
        self.schedule = kind(own, microbatches, loss_fn=nn.functional.mse_loss)
        parameters = [p for stage in self.stages for p in stage.submod.parameters()]
        self._optimizer = torch.optim.SGD(parameters, lr=0.01)
        if at_once:
            self.schedule.register_custom_function(schedules.OVERLAP_F_B, run_at_once)
        self._data = torch.Generator().manual_seed(3)
        self._batch = 2 * microbatches

    @staticmethod
    def _layer(stage: int, inner: int) -> Layer:
        torch.manual_seed(100 + stage)
        return Layer(inner)

    def train(self) -> list[str]:
        losses: list[torch.Tensor] = []
        inputs = torch.randn(self._batch, WIDTH, generator=self._data)
        self.schedule.step(*self._arguments(inputs), target=self._target(inputs), losses=losses)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return [float(loss).hex() for loss in losses]

    def evaluate(self) -> None:
        inputs = torch.randn(self._batch, WIDTH, generator=self._data)
        self.schedule.eval(*self._arguments(inputs), target=self._target(inputs))

    def weights(self) -> str:
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


def run_at_once(action: Any, context: Any) -> None:  # noqa: ANN401
    """Run an overlapped pair's forward here and its backward in a thread, as torch would run them in turn."""
    schedule = context.schedule_ref
    stages = {stage.stage_index: stage for stage in schedule._stages}
    forward, backward = action.sub_actions

    def run_backward() -> None:
        stage, number = stages[backward.stage_index], backward.microbatch_index
        if not stage.is_last and backward.stage_index + 1 not in stages:
            schedules._wait_batch_p2p(schedule.bwd_recv_ops.pop((backward.stage_index, number)))
        schedule.backward_counter[backward.stage_index] += 1
        last = schedule.backward_counter[backward.stage_index] == schedule._n_microbatches
        loss = schedule._maybe_get_loss(stage, number)
        computes.wait()
        stage.backward_one_chunk(number, loss=loss, full_backward=True, last_backward=last)
        if backward.stage_index - 1 in stages:
            below = stages[backward.stage_index - 1]
            below.set_local_bwd_input(stage.get_local_bwd_output(number), number)

    beside, computes = threading.Thread(target=run_backward), threading.Event()
    stage, number = stages[forward.stage_index], forward.microbatch_index
    if not stage.is_first and forward.stage_index - 1 not in stages:
        schedules._wait_batch_p2p(schedule.fwd_recv_ops.pop((forward.stage_index, number)))
    hook = stage.submod.register_forward_pre_hook(lambda *_: computes.set())
    beside.start()
    output = stage.forward_one_chunk(number, context.arg_mbs[number], context.kwarg_mbs[number])
    beside.join()
    hook.remove()
    schedule._maybe_compute_loss(stage, output, context.target_mbs, number, None)
    if forward.stage_index + 1 in stages:
        stages[forward.stage_index + 1].set_local_fwd_input(output, number)


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
