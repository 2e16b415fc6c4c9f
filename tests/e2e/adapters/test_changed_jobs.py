"""A job whose model is run otherwise is another job: no profile or plan of the one serves the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from deepspeed_hosts import ZeroHost, one_f_one_b, zero_engine
from pipelines import Pipeline
from ranks import run_ranks
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from perseus_ds.adapters.deepspeed import DeepSpeedAdapter
from perseus_ds.adapters.torch_pipelining import PipeliningAdapter, check
from perseus_ds.runtime.adapter import Adapter

pytestmark = pytest.mark.e2e

Told = tuple[str, Mapping[str, str]]
Change = Callable[[nn.Module], nn.Module]


def told(adapter: Adapter) -> Told:
    return adapter.place().modules, dict(adapter.traits())


def compiled(module: nn.Module) -> nn.Module:
    module.compile()
    return module


def in_place(module: nn.Module) -> nn.Module:
    for layer in module.children():
        checkpoint(layer)
    return module


def selective(module: nn.Module) -> nn.Module:
    def contexts() -> object:
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    return checkpoint_wrapper(module, context_fn=contexts)


def in_another_precision(module: nn.Module) -> nn.Module:
    return fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))


WRAPPED: Mapping[str, Change] = {
    "plain": lambda module: module,
    "checkpointed": checkpoint_wrapper,
    "checkpointed selectively": selective,
    "checkpointed in place": in_place,
    "offloaded": offload_wrapper,
    "compiled": compiled,
    "sharded": fully_shard,
    "sharded, gathering in every forward": lambda module: fully_shard(module, reshard_after_forward=True),
    "sharded, in another precision": in_another_precision,
}


def of_pipelining(rank: int) -> dict[str, Told]:
    def adapter(wrap: Change) -> PipeliningAdapter:
        return PipeliningAdapter(check(Pipeline("1F1B", 4, wrap=wrap).schedule))

    answers = {name: told(adapter(wrap)) for name, wrap in WRAPPED.items()}
    with torch.autocast("cpu", torch.bfloat16):
        answers["autocast"] = told(adapter(WRAPPED["plain"]))
    return answers


def of_deepspeed(rank: int) -> dict[str, Told]:
    engine: Any = one_f_one_b(1)
    adapter = DeepSpeedAdapter(engine, engine._train_schedule())
    answers = {"plain": told(adapter)}
    engine.module.activation_checkpoint_interval = 1
    answers["checkpointed"] = told(adapter)
    engine.module.compile()
    return answers | {"compiled too": told(adapter)}


def of_zero(rank: int) -> dict[str, Told]:
    engine = zero_engine(1)
    host = ZeroHost(engine)
    answers = {"plain": told(host.adapter())}
    checkpoint(engine.module[0])
    answers["checkpointed"] = told(host.adapter())
    engine.compile()
    return answers | {
        "compiled too": told(host.adapter()),
        "stage 2": told(ZeroHost(zero_engine(2)).adapter()),
    }


def of_megatron(rank: int) -> dict[str, Told]:
    from megatron_jobs import Job, Shape, adapter_of  # changes torch: for a process of its own

    job = Job(Shape())
    answers = {"plain": told(adapter_of(job))}
    job.chunks[0].compile()
    answers["compiled"] = told(adapter_of(job))
    recomputed = Job(Shape(settings={"recompute_granularity": "full", "recompute_method": "uniform"}))
    return answers | {"recomputed": told(adapter_of(recomputed))}


@pytest.mark.parametrize(
    "job", [of_pipelining, of_deepspeed, of_zero, of_megatron], ids=lambda job: job.__name__
)
def test_every_change_is_another_job(job: Callable[[int], dict[str, Told]]) -> None:
    if job is of_megatron:
        pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    answers = run_ranks(1, job)[0].value
    assert answers["plain"][0] == "plain"
    for name, one in answers.items():
        same = [other for other, another in answers.items() if another == one and other != name]
        assert not same, f"{name} counts as {same}"
