"""Train a small GPT on the source of Python's standard library: DeepSpeed without a pipeline, ZeRO stage 1.

    deepspeed --num_gpus 4 scripts/demo_job/train_zero.py --deepspeed_config configs/demo-zero.json

Nothing here knows of Perseus.
"""

from __future__ import annotations

import argparse
import time

import deepspeed
import torch
from gpt import Block, Embedding, Head, loss_of, microbatches, parser_of, report, standard_library
from torch import nn


def options_from_command_line() -> argparse.Namespace:
    """Read our own options and those that DeepSpeed adds."""
    parser = parser_of(__doc__)
    parser.add_argument("--blocks", type=int, default=4, help="transformer layers")
    parser.add_argument("--local_rank", type=int, default=-1, help="set by the launcher")
    return deepspeed.add_config_arguments(parser).parse_args()


def main() -> None:
    """Build the engine and train it, as users write the loop."""
    options = options_from_command_line()
    # On a CPU DeepSpeed would first compile collectives that only inference uses (a minute, and a compiler).
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()
    torch.manual_seed(options.seed)
    blocks = [Block() for _ in range(options.blocks)]
    model = nn.Sequential(Embedding(options.context), *blocks, Head())
    engine, *_ = deepspeed.initialize(args=options, model=model)
    batches = microbatches(
        standard_library(),
        size=engine.train_micro_batch_size_per_gpu(),
        context=options.context,
        seed=options.seed + torch.distributed.get_rank(),
    )
    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        for _ in range(engine.gradient_accumulation_steps()):
            text, following = next(batches)
            loss = loss_of(engine(text), following)
            engine.backward(loss)
            engine.step()
        if torch.distributed.get_rank() == 0:
            report(step, float(loss.detach()), time.perf_counter() - began, options)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
