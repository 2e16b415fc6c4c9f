"""Train the small GPT as torchtitan would: torch.distributed.pipelining, gradients clipped over the pipeline.

    torchrun --nproc_per_node 4 scripts/demo_job/train_pipelining.py --schedule ZBVZeroBubble

Nothing here knows of Perseus. With more processes than ``--ranks`` the pipelines train side by side, their
parameters sharded by FSDP2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import torch
from gpt import Block, Embedding, Head, loss_of, microbatches, parser_of, report, standard_library
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    get_schedule_class,
)
from torch.distributed.tensor import DTensor

MOST_NORM = 1.0
IN_A_V = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")

Schedule = PipelineScheduleMulti | PipelineScheduleSingle


def stage_module(stage: int, stages: int, options: argparse.Namespace) -> nn.Sequential:
    """Cut one stage out of the model: the layers as evenly as they go, the head with the last."""
    torch.manual_seed(options.seed + stage)
    blocks = options.blocks * (stage + 1) // stages - options.blocks * stage // stages
    embedding = [Embedding(options.context)] if stage == 0 else []
    head = [Head()] if stage == stages - 1 else []
    return nn.Sequential(*embedding, *(Block() for _ in range(blocks)), *head)


def stages_of(options: argparse.Namespace, mesh: DeviceMesh) -> list[PipelineStage]:
    """Build the model stages that this rank holds."""
    kind = get_schedule_class(options.schedule)
    rank, ranks = mesh["pipeline"].get_local_rank(), mesh["pipeline"].size()
    chunks = 1 if issubclass(kind, PipelineScheduleSingle) else options.chunks
    held = [rank + chunk * ranks for chunk in range(chunks)]
    if kind.__name__ in IN_A_V:
        held = [rank, 2 * ranks - 1 - rank]
    stages = ranks * len(held)
    return [
        PipelineStage(
            sharded(stage_module(stage, stages, options), mesh),
            stage,
            stages,
            torch.device("cpu"),
            group=mesh["pipeline"].get_group(),
        )
        for stage in held
    ]


def sharded(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Shard the parameters over the pipelines, as torchtitan does; gathered once per iteration."""
    if mesh["replica"].size() > 1:
        fully_shard(module, mesh=mesh["replica"], reshard_after_forward=False)
    return module


def schedule_of(options: argparse.Namespace, stages: Sequence[PipelineStage]) -> Schedule:
    """Build torch's schedule of that name."""
    kind = get_schedule_class(options.schedule)
    held = list(stages) if issubclass(kind, PipelineScheduleMulti) else stages[0]
    return kind(held, options.microbatches, loss_fn=loss_of)  # type: ignore[arg-type, no-any-return]


def clip(parameters: Sequence[Tensor]) -> None:
    """Clip the gradients by their norm over all stages and shards: all ranks meet here."""
    grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in parameters]
    squares = torch.stack([(grad.float() ** 2).sum() for grad in grads if grad is not None]).sum()
    torch.distributed.all_reduce(squares)
    factor = (MOST_NORM / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for grad in grads:
        if grad is not None:
            grad.mul_(factor)


def train(
    schedule: Schedule,
    stages: Sequence[PipelineStage],
    batches: Iterator[tuple[Tensor, Tensor]],
    options: argparse.Namespace,
) -> None:
    """Run the steps, printing the loss on the rank that computes it."""
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    first, last = (any(getattr(stage, end) for stage in stages) for end in ("is_first", "is_last"))
    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        characters, targets = next(batches)
        losses: list[Tensor] = []
        optimizer.zero_grad()
        schedule.step(
            *([characters] if first else []),
            target=targets if last else None,
            losses=losses if last else None,
            return_outputs=False,
        )
        clip(parameters)
        optimizer.step()
        if last:
            loss, seconds = float(torch.stack(losses).mean()), time.perf_counter() - began
            first = torch.distributed.get_rank() < options.ranks
            report(step, loss, seconds, options, to_file=first)


def options_from_command_line() -> argparse.Namespace:
    """Read the options."""
    parser = parser_of(__doc__)
    parser.add_argument("--schedule", default="ZBVZeroBubble", help="a schedule of torch's, by its name")
    parser.add_argument("--ranks", type=int, default=4, help="of a pipeline; the rest is data parallel")
    parser.add_argument("--chunks", type=int, default=2, help="model stages on a rank, where a schedule asks")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=16, help="transformer layers")
    return parser.parse_args()


def main() -> None:
    """Build the pipeline and train it."""
    options = options_from_command_line()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    replicas = torch.distributed.get_world_size() // options.ranks
    mesh = init_device_mesh("cpu", (replicas, options.ranks), mesh_dim_names=("replica", "pipeline"))
    stages = stages_of(options, mesh)
    batches = microbatches(
        standard_library(),
        size=options.microbatches * options.micro_batch_size,
        context=options.context,
        seed=options.seed + mesh["replica"].get_local_rank(),
    )
    train(schedule_of(options, stages), stages, batches, options)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
