"""Train a small GPTModel of megatron-core in Megatron's own schedules, as pretrain_gpt.py would.

    torchrun --nproc_per_node 4 scripts/demo_job/train_megatron.py --chunks 2

Nothing here knows of Perseus. The model is megatron-core's `GPTModel` with its local layer specification, on
CPUs (`megatron_on_cpu`). With more processes than ``--ranks`` the pipelines train side by side.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import megatron_on_cpu
import torch
from gpt import VOCABULARY, microbatches, parser_of, report, standard_library
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.enums import ModelType
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

WIDTH, HEADS = 32, 4
Batches = Iterator[tuple[Tensor, Tensor]]


def config_of(options: argparse.Namespace) -> TransformerConfig:
    """Set up the model; what needs fused CUDA kernels is off."""
    config = TransformerConfig(
        num_layers=options.layers,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        pipeline_model_parallel_size=options.ranks,
        virtual_pipeline_model_parallel_size=options.chunks if options.chunks > 1 else None,
        pipeline_dtype=torch.float32,
        overlap_p2p_comm=options.chunks > 1,
        batch_p2p_comm=options.chunks == 1,
        deallocate_pipeline_outputs=False,
    )
    config.finalize_model_grads_func = finalize_model_grads
    return config


def chunk_of(number: int, config: TransformerConfig, options: argparse.Namespace) -> nn.Module:
    """Build one of this rank's model chunks."""
    stage = number * options.ranks + parallel_state.get_pipeline_model_parallel_rank()
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=options.context,
        pre_process=stage == 0,
        post_process=stage == options.ranks * options.chunks - 1,
        share_embeddings_and_output_weights=False,
        vp_stage=number if options.chunks > 1 else None,
    )
    model.model_type = ModelType.encoder_or_decoder
    return DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=True), model)


def forward(mask: Tensor, batches: Batches, model: nn.Module) -> tuple[Tensor, Callable[..., Any]]:
    """Do what Megatron asks of a training script: one microbatch, and what its loss is."""
    characters, targets = next(batches)
    places = torch.arange(characters.shape[1]).expand_as(characters)
    return model(characters, places, mask, labels=targets), mean_loss


def mean_loss(losses: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss, and what is shown of it."""
    loss = losses.float().mean()
    return loss, {"loss": loss.detach().clone()}


def train(
    chunks: list[nn.Module],
    optimizer: MegatronOptimizer,
    batches: list[Batches],
    options: argparse.Namespace,
) -> None:
    """Run the steps, printing the loss on the rank that computes it."""
    mask = torch.triu(torch.ones(1, 1, options.context, options.context, dtype=torch.bool), 1)
    run_pass = get_forward_backward_func()
    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        shown = run_pass(
            forward_step_func=partial(forward, mask),
            data_iterator=batches if len(chunks) > 1 else batches[0],
            model=chunks if len(chunks) > 1 else chunks[0],
            num_microbatches=options.microbatches,
            seq_length=options.context,
            micro_batch_size=options.micro_batch_size,
        )
        optimizer.step()
        if shown and parallel_state.get_data_parallel_rank() == 0:
            loss = float(torch.stack([one["loss"] for one in shown]).mean())
            report(step, loss, time.perf_counter() - began, options)


def options_from_command_line() -> argparse.Namespace:
    """Read the options."""
    parser = parser_of(__doc__)
    parser.add_argument("--ranks", type=int, default=4, help="of a pipeline; the rest is data parallel")
    parser.add_argument("--chunks", type=int, default=1, help="virtual pipeline stages on every rank")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8, help="transformer layers")
    return parser.parse_args()


def main() -> None:
    """Build the pipeline and train it."""
    options = options_from_command_line()
    megatron_on_cpu.pretend()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(1, options.ranks, options.chunks if options.chunks > 1 else None)
    tensor_parallel.model_parallel_cuda_manual_seed(options.seed)
    torch.manual_seed(options.seed + parallel_state.get_pipeline_model_parallel_rank())
    config = config_of(options)
    chunks = [chunk_of(number, config, options) for number in range(options.chunks)]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=1.0, params_dtype=torch.float32), chunks
    )
    text, seed = standard_library(), options.seed + parallel_state.get_data_parallel_rank()
    batches = [
        microbatches(text, size=options.micro_batch_size, context=options.context, seed=seed) for _ in chunks
    ]
    train(chunks, optimizer, batches, options)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
