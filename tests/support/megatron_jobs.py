"""Real megatron-core jobs of a few GPTModel layers on CPUs, one process per rank."""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np
import torch
from jobs import LONGEST, lengths_of
from megatron_on_cpu import pretend
from ranks import digest_of
from torch import Tensor, nn

from perseus_ds.adapters.megatron import MegatronAdapter, OnePass

with warnings.catch_warnings():  # of what is not installed: apex, transformer engine
    warnings.simplefilter("ignore")
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import ModelType
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.transformer_config import TransformerConfig


VOCABULARY, SEQUENCE, SIZE = 32, 8, 2


@dataclass(frozen=True)
class Shape:
    """How a job is laid out; ``group`` is Megatron's microbatch_group_size_per_vp_stage.

    With ``combined`` a forward and a backward run at once. With ``packed`` a microbatch is one row of several
    sequences, of another total length each time.
    """

    pipeline: int = 1
    chunks: int = 1
    microbatches: int = 4
    data: int = 1
    tensor: int = 1
    experts: int = 1
    context: int = 1
    group: int | None = None
    overlap_p2p: bool = False
    overlap_reduce: bool = False
    distributed_optimizer: bool = False
    layers_per_chunk: int = 1
    packed: bool = False
    combined: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return self.pipeline * self.data * self.tensor * self.context

    @property
    def virtual(self) -> int | None:
        """Megatron's word for chunks, where there are any."""
        return self.chunks if self.chunks > 1 else None


class Job:
    """One rank of it: model chunks, optimizer, data; ``step`` is one training iteration."""

    def __init__(self, shape: Shape, *, seed: int = 1) -> None:
        pretend()
        vars(moe_utils).setdefault("te_general_gemm", None)  # 0.16.1 forgets it without transformer engine
        self.shape, self.schedules = shape, schedules
        if not parallel_state.is_initialized():
            parallel_state.initialize_model_parallel(
                shape.tensor,
                shape.pipeline,
                shape.virtual,
                context_parallel_size=shape.context,
                expert_model_parallel_size=shape.experts,
            )
        tensor_parallel.model_parallel_cuda_manual_seed(seed)
        torch.manual_seed(seed + parallel_state.get_pipeline_model_parallel_rank())
        self.config = _config(shape)
        self.chunks = [_chunk(self.config, shape, number) for number in range(shape.chunks)]
        self.optimizer = _optimizer(self.chunks, shape)
        replica = parallel_state.get_data_parallel_rank()
        batches = packed_batches(replica, shape.microbatches) if shape.packed else None
        self.data = [batches or _batches(seed + replica, shape) for _ in self.chunks]
        self.run_pass = schedules.get_forward_backward_func()

    def step(self) -> list[str]:
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        losses = self.call()
        self.optimizer.step()
        return losses

    def call(self, run_pass: Callable[..., Any] | None = None, **changes: Any) -> list[str]:  # noqa: ANN401
        interleaved = self.shape.chunks > 1
        keywords = {
            "forward_step_func": _packed_step if self.shape.packed else _forward_step,
            "data_iterator": self.data if interleaved else self.data[0],
            "model": self.chunks if interleaved else self.chunks[0],
            "num_microbatches": self.shape.microbatches,
            "seq_length": SEQUENCE,
            "micro_batch_size": 1 if self.shape.packed else SIZE,
        }
        found = (run_pass or self.run_pass)(**(keywords | changes))
        return [float(one["loss"]).hex() for one in found]

    def weights(self) -> str:
        return digest_of(parameter for chunk in self.chunks for parameter in chunk.parameters())


def adapter_of(job: Job) -> MegatronAdapter:
    keywords: dict[str, Any] = {}
    job.call(lambda **found: keywords.update(found) or [])
    name = getattr(job.run_pass, "__name__", "")
    return MegatronAdapter(OnePass(job.schedules, name, keywords))


def _config(shape: Shape) -> Any:  # noqa: ANN401
    """Two experts on each rank, two for each token, exchanged by all-to-all, where there are any."""
    experts: dict[str, Any] = {}
    if shape.experts > 1:
        experts = {
            "expert_model_parallel_size": shape.experts,
            "num_moe_experts": 2 * shape.experts,
            "moe_router_topk": 2,
            "moe_token_dispatcher_type": "alltoall",
            "moe_router_load_balancing_type": "aux_loss",
            "moe_aux_loss_coeff": 0.01,
            "add_bias_linear": False,
        }
    config = TransformerConfig(
        num_layers=shape.pipeline * shape.chunks * shape.layers_per_chunk,
        hidden_size=16,
        num_attention_heads=max(2, shape.tensor),
        use_cpu_initialization=True,
        tensor_model_parallel_size=shape.tensor,
        pipeline_model_parallel_size=shape.pipeline,
        virtual_pipeline_model_parallel_size=shape.virtual,
        microbatch_group_size_per_vp_stage=shape.group or shape.pipeline,
        pipeline_dtype=torch.float32,
        deallocate_pipeline_outputs=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        context_parallel_size=shape.context,
        **experts,
        overlap_p2p_comm=shape.overlap_p2p,
        batch_p2p_comm=not shape.overlap_p2p,
    )
    config.overlap_moe_expert_parallel_comm = shape.combined  # Megatron asks for bf16 if it knows beforehand
    for name, value in shape.settings.items():
        setattr(config, name, value)
    config.finalize_model_grads_func = finalize_model_grads
    return config


def _chunk(config: Any, shape: Shape, number: int) -> Any:  # noqa: ANN401
    rank, last = parallel_state.get_pipeline_model_parallel_rank(), shape.pipeline * shape.chunks - 1
    stage = number * shape.pipeline + rank
    if shape.chunks > 1:
        parallel_state.set_virtual_pipeline_model_parallel_rank(number)
    takes_stage = "vp_stage" in GPTModel.__init__.__code__.co_varnames
    virtual = {"vp_stage": number} if shape.chunks > 1 and takes_stage else {}
    layers = get_gpt_layer_local_spec(num_experts=config.num_moe_experts)
    if shape.context > 1:
        layers.submodules.self_attention.submodules.core_attention = GatheredAttention
    if shape.packed:
        layers.submodules.self_attention.submodules.core_attention = PackedAttention
    model = GPTModel(
        config,
        layers,
        vocab_size=VOCABULARY,
        max_sequence_length=LONGEST if shape.packed else SEQUENCE,
        pre_process=stage == 0,
        post_process=stage == last,
        share_embeddings_and_output_weights=False,
        **virtual,
    )
    model.model_type = ModelType.encoder_or_decoder
    reduction = DistributedDataParallelConfig(
        overlap_grad_reduce=shape.overlap_reduce, use_distributed_optimizer=shape.distributed_optimizer
    )
    return DistributedDataParallel(config, reduction, model)


def _optimizer(chunks: list[Any], shape: Shape) -> Any:  # noqa: ANN401
    settings = OptimizerConfig(
        optimizer="adam",
        lr=1e-2,
        clip_grad=1.0,
        params_dtype=torch.float32,
        use_distributed_optimizer=shape.distributed_optimizer,
    )
    return get_megatron_optimizer(settings, chunks)


def _batches(seed: int, shape: Shape) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's part of each sequence; sequences of several lengths where the arguments allow them."""
    generator = torch.Generator().manual_seed(seed)
    part, parts = parallel_state.get_context_parallel_rank(), shape.context
    while True:
        length = SEQUENCE
        if shape.settings.get("variable_seq_lengths"):
            length = int(torch.randint(2, SEQUENCE + 1, (), generator=generator))
        tokens = torch.randint(VOCABULARY, (SIZE, length + 1), generator=generator)
        yield tuple(one.chunk(parts, dim=1)[part].contiguous() for one in (tokens[:, :-1], tokens[:, 1:]))


def _forward_step(data: Iterator[Any], model: Any, return_schedule_plan: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002
    tokens, labels = next(data)
    length = tokens.shape[1]
    positions = torch.arange(length).expand_as(tokens)
    mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
    run = model.build_schedule_plan if return_schedule_plan else model
    return run(tokens, positions, mask, labels=labels), _loss


def _loss(output: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    loss = output.float().mean()
    return loss, {"loss": loss.detach().clone()}


# Attention over a sequence that is spread over ranks, and within each of several packed ones. Megatron's own
# needs Transformer Engine for both, and that a GPU. Groups, layout (THD) and all around are Megatron's.


class GatheredAttention(nn.Module):
    """This rank's queries against the keys and values of all context-parallel ranks, without a mask."""

    def __init__(self, config: Any, **words: Any) -> None:  # noqa: ANN401
        super().__init__()
        alone = copy.copy(config)
        alone.context_parallel_size = 1
        self.inner = DotProductAttention(alone, **words)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None, **words: Any) -> Tensor:  # noqa: ANN401
        group = parallel_state.get_context_parallel_group()
        key, value = (gather_from_sequence_parallel_region(one, group=group) for one in (key, value))
        mask = torch.zeros(1, 1, query.shape[0], key.shape[0], dtype=torch.bool)
        return self.inner(query, key, value, mask, **words)


class PackedAttention(nn.Module):
    """Each sequence's queries against its own keys and values, by Megatron's attention without packing."""

    def __init__(self, config: Any, **words: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.inner = DotProductAttention(config, **words)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None, **words: Any) -> Tensor:  # noqa: ANN401
        boundaries = words.pop("packed_seq_params").cu_seqlens_q.tolist()
        attended = []
        for start, end in pairwise(boundaries):
            own = (one[start:end].unsqueeze(1) for one in (query, key, value))
            mask = torch.triu(torch.ones(1, 1, end - start, end - start, dtype=torch.bool), 1)
            attended.append(self.inner(*own, mask, **words))
        return torch.cat(attended)


def _packed_step(data: Iterator[Mapping[str, Tensor]], model: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
    """Run a packed microbatch as Megatron-LM does: boundaries become ``packed_seq_params``."""
    batch = next(data)
    boundaries = batch["cu_seqlens"]
    longest = int(boundaries.diff().max())
    packing = PackedSeqParams("thd", boundaries, boundaries, max_seqlen_q=longest, max_seqlen_kv=longest)
    tokens, positions, labels = (batch[name] for name in ("tokens", "position_ids", "labels"))
    return model(tokens, positions, None, labels=labels, packed_seq_params=packing), _loss


def packed_batches(replica: int, microbatches: int) -> Iterator[Mapping[str, Tensor]]:
    """Microbatches for ever: tokens and labels in one row, positions within each sequence, boundaries."""
    generator = torch.Generator().manual_seed(replica)
    for iteration in count():
        for lengths in lengths_of(replica, iteration, microbatches):
            tokens = torch.randint(VOCABULARY, (1, sum(lengths) + 1), generator=generator)
            yield {
                "tokens": tokens[:, :-1],
                "labels": tokens[:, 1:],
                "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
                "cu_seqlens": torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32),
            }
