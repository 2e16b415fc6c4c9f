"""One call of a function that runs a pass: whose model, how many microbatches, of what shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import cast

import torch.distributed as dist
from torch import nn

from perseus_ds.adapters.megatron.seam import INTERLEAVED
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Load


@dataclass(frozen=True, slots=True)
class OnePass:
    """The keywords of a call; all releases take them under these names."""

    module: ModuleType
    name: str
    keywords: Mapping[str, object]

    @property
    def trains(self) -> bool:
        """Whether it runs backwards."""
        return not self.keywords.get("forward_only", False)

    @property
    def chunks(self) -> list[nn.Module]:
        """The model chunks of this rank, one without virtual stages."""
        model = self.keywords.get("model")
        return list(model) if isinstance(model, list) else [cast("nn.Module", model)]

    @property
    def interleaved(self) -> bool:
        """Whether ranks hold several chunks."""
        return self.name == INTERLEAVED

    @property
    def config(self) -> object:
        """The model's configuration."""
        return self.module.get_model_config(self.chunks[0])

    @property
    def batch(self) -> Batch:
        """What a plan must fit."""
        sizes = [self.keywords.get(name) for name in ("micro_batch_size", "seq_length", "decoder_seq_length")]
        shape = " x ".join(str(size) for size in sizes if size is not None)
        return Batch(cast("int", self.keywords.get("num_microbatches")), shape)

    def replace_keyword(self, name: str, value: object) -> None:
        """Have the call made with another value, before it is made."""
        cast("dict[str, object]", self.keywords)[name] = value

    @property
    def load(self) -> Load | None:
        """Return the load of a microbatch, as the call informs it: so many sequences of one length."""
        sizes = [self.keywords.get(name) for name in ("micro_batch_size", "seq_length")]
        known = [size for size in sizes if isinstance(size, int)]
        return Load.of_shape(known) if len(known) == len(sizes) else None

    def place(self) -> tuple[int, int, int]:
        """Return pipeline rank, pipeline ranks and replica: by the call's groups, else by Megatron's own."""
        state, groups = self.module.parallel_state, self.keywords.get("pg_collection")
        pipeline, data = getattr(groups, "pp", None), getattr(groups, "dp", None)
        return (
            pipeline.rank() if pipeline else state.get_pipeline_model_parallel_rank(),
            pipeline.size() if pipeline else state.get_pipeline_model_parallel_world_size(),
            data.rank() if data else state.get_data_parallel_rank(),
        )

    @property
    def coupled(self) -> tuple[int, ...]:
        """The ranks that exchange tokens with this one in MoE layers; none without expert parallelism."""
        state, groups = self.module.parallel_state, self.keywords.get("pg_collection")
        if state.get_expert_model_parallel_world_size() == 1:
            return ()
        experts = getattr(groups, "tp_ep", None) or state.get_expert_tensor_and_model_parallel_group()
        return tuple(dist.get_process_group_ranks(experts))
