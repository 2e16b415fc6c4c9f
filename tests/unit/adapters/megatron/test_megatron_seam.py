from __future__ import annotations

from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest

from perseus_ds.adapters.megatron import MODULE, REQUIRED_NAMES, check, refuse_unsupported
from perseus_ds.errors import EngineError


class Scope(Enum):
    full_iteration = 1
    attn = 2


def megatron() -> ModuleType:
    """A module with all that is asked of megatron-core's."""
    module = ModuleType(MODULE)
    state = SimpleNamespace()
    for required in REQUIRED_NAMES:
        *path, name = required.name.split(".")
        setattr(state if path else module, name, lambda: 1)
    module.forward_step = lambda *args, current_microbatch=None, **kwargs: None  # type: ignore[attr-defined]
    module.parallel_state = state  # type: ignore[attr-defined]
    return module


def test_a_module_with_every_name_passes() -> None:
    check(megatron())


@pytest.mark.parametrize("need", [required.name for required in REQUIRED_NAMES])
def test_a_missing_name_is_named_with_the_releases_tested(need: str) -> None:
    module = megatron()
    *path, name = need.split(".")
    delattr(module.parallel_state if path else module, name)
    with pytest.raises(EngineError, match=need) as refused:
        check(module)
    assert "0.16.1" in (refused.value.hint or "")


def test_the_fork_of_megatron_deepspeed_is_known_by_its_forward_step() -> None:
    module = megatron()
    module.forward_step = lambda forward_step_func, data_iterator, model: None  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="current_microbatch") as refused:
        check(module)
    assert "--deepspeed" in (refused.value.hint or "")


REFUSED = [
    ({"overlap_moe_expert_parallel_comm": True}, "overlap_moe_expert_parallel_comm.* would need a function"),
    ({"hybrid_context_parallel": True}, "hybrid_context_parallel.* would have to know the groups of samples"),
    (
        {"enable_cuda_graph": True, "cuda_graph_scope": "full_iteration"},
        "CUDA graph.*; graphs of single layers are served",
    ),
    ({"cuda_graph_impl": "local", "cuda_graph_scope": [Scope.full_iteration]}, "CUDA graph"),
    ({"cuda_graph_impl": "full_iteration"}, "CUDA graph"),
]
SERVED = [
    {},
    {"overlap_moe_expert_parallel_comm": False, "hybrid_context_parallel": False},
    {"variable_seq_lengths": True},
    {"enable_cuda_graph": True, "cuda_graph_scope": "full"},
    {"cuda_graph_impl": "none", "cuda_graph_scope": [Scope.full_iteration]},
    {"cuda_graph_impl": "local", "cuda_graph_scope": [Scope.attn]},
    {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": Scope.attn},
]


@pytest.mark.parametrize(("settings", "words"), REFUSED)
def test_what_cannot_be_served_is_refused_with_the_reason(settings: dict[str, object], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        refuse_unsupported(SimpleNamespace(**settings), {})


@pytest.mark.parametrize("settings", SERVED)
def test_what_leaves_the_host_between_instructions_is_served(settings: dict[str, object]) -> None:
    refuse_unsupported(SimpleNamespace(**settings), {})


@pytest.mark.parametrize("name", ["MultiModuleProcessGroupCollection", "MultiModulePipelineCommunicator"])
def test_a_pipeline_of_several_modules_is_refused_by_name(name: str) -> None:
    keywords = {"pg_collection": type(name, (), {})()}
    with pytest.raises(EngineError, match="backward_step_multimodule"):
        refuse_unsupported(SimpleNamespace(), keywords)
