"""Train a small GPT on the source of Python's standard library: an ordinary DeepSpeed pipeline job.

    deepspeed --num_gpus 4 scripts/demo_job/train.py --deepspeed_config configs/demo.json

Nothing here knows of Perseus.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.engine import PipelineEngine
from gpt import Block, Embedding, Head, loss_of, microbatches, parser_of, report, standard_library
from torch import Tensor


def train(
    engine: PipelineEngine, batches: Iterator[tuple[Tensor, Tensor]], options: argparse.Namespace
) -> None:
    """Run the steps, printing the loss on rank 0."""
    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        loss = float(engine.train_batch(data_iter=batches))
        if engine.global_rank == 0:
            report(step, loss, time.perf_counter() - began, options)


def options_from_command_line() -> argparse.Namespace:
    """Read our own options and those that DeepSpeed adds."""
    parser = parser_of(__doc__)
    parser.add_argument("--stages", type=int, default=4, help="pipeline stages; the rest is data parallel")
    parser.add_argument("--blocks", type=int, default=12, help="transformer layers")
    parser.add_argument("--local_rank", type=int, default=-1, help="set by the launcher")
    return deepspeed.add_config_arguments(parser).parse_args()


def main() -> None:
    """Build the pipeline and train it."""
    options = options_from_command_line()
    # On a CPU DeepSpeed would first compile collectives that only inference uses (a minute, and a compiler).
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()
    layers = [
        LayerSpec(Embedding, options.context),
        *(LayerSpec(Block) for _ in range(options.blocks)),
        LayerSpec(Head),
    ]
    model = PipelineModule(
        layers,
        num_stages=options.stages,
        loss_fn=loss_of,
        partition_method="type:Block",
        seed_layers=True,
        seed_fn=torch.manual_seed,
        base_seed=options.seed,
    )
    engine, *_ = deepspeed.initialize(args=options, model=model)
    batches = microbatches(
        standard_library(),
        size=engine.train_micro_batch_size_per_gpu(),
        context=options.context,
        seed=options.seed + engine.grid.get_data_parallel_id(),
    )
    train(engine, batches, options)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
