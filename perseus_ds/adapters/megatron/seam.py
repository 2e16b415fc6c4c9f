"""All that we rely on in megatron-core: names of one module, checked before use, and what we cannot serve."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType

from perseus_ds.adapters.required_names import Release, RequiredName
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.schedule import Kind

MODULE = "megatron.core.pipeline_parallel.schedules"

TESTED_MEGATRON = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1")
"""Releases on which `scripts/versions` runs a whole job."""

INTERLEAVED = "forward_backward_pipelining_with_interleaving"
PASSES = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_without_interleaving",
    INTERLEAVED,
)
"""Functions that run one iteration, called with keywords alone."""

STEPS = {"forward_step": Kind.FORWARD, "backward_step": Kind.BACKWARD}
"""Functions that they call for every microbatch, looked up by name at each call."""

Function = Callable[..., object]

PASS_NAMES = tuple(RequiredName(name, "knowing when an iteration starts and ends") for name in PASSES)
REQUIRED_NAMES = (
    *PASS_NAMES,
    *(RequiredName(name, "running around every instruction") for name in STEPS),
    RequiredName("get_schedule_table", "checking the order of an interleaved pipeline"),
    RequiredName("get_model_config", "knowing what cannot be served"),
    RequiredName("parallel_state.get_pipeline_model_parallel_rank", "knowing this rank's place"),
    RequiredName("parallel_state.get_pipeline_model_parallel_world_size", "the pipeline's depth"),
    RequiredName("parallel_state.get_data_parallel_rank", "knowing the replica"),
    RequiredName("parallel_state.get_tensor_model_parallel_world_size", "recognising the job"),
    RequiredName("parallel_state.get_context_parallel_world_size", "recognising the job"),
    RequiredName("parallel_state.get_expert_model_parallel_world_size", "knowing who waits for whom"),
    RequiredName("parallel_state.get_expert_tensor_and_model_parallel_group", "knowing who waits for whom"),
)
"""Every name relied on, and what for; the same in all releases tested, and in 0.17 to 0.20 as far as read."""

_REFUSED = {
    "overlap_moe_expert_parallel_comm": (
        "a forward and a backward run at once, past the functions that perseus_ds listens to",
        "it would need a function around each of the two",
    ),
    "hybrid_context_parallel": (
        (
            "every pass deals its samples anew, so that ranks run other numbers of computations in every "
            "iteration, unknown until it has begun"
        ),
        "all ranks would have to know the groups of samples before a pass",
    ),
}
"""Why, and what would have to change."""


_MULTIMODULE = {"MultiModuleProcessGroupCollection", "MultiModulePipelineCommunicator"}
"""Classes that a pass is called with where encoders and the language model have pipelines of their own.

Source: ``forward_backward_pipelining_without_interleaving`` of megatron-core 0.17 and later.
"""


def megatron_version() -> str:
    """The release that is imported; its package reports it itself."""
    return str(getattr(sys.modules.get("megatron.core"), "__version__", "of no known release"))


def check(module: ModuleType) -> None:
    """Return if everything that we rely on is there.

    Raises:
        UnsupportedEngineError: naming what is missing, the release found and those tested.
    """
    check_names(module, REQUIRED_NAMES)
    if "current_microbatch" not in inspect.signature(module.forward_step).parameters:
        raise UnsupportedEngineError(
            f"{MODULE} is not megatron-core's own: its forward_step has no current_microbatch",
            hint="Megatron-DeepSpeed is served through DeepSpeed's engine: start it with --deepspeed",
        )


def check_names(module: ModuleType, names: Iterable[RequiredName]) -> None:
    """Return if some of those names are there.

    Raises:
        UnsupportedEngineError: naming what is missing, the release found and those tested.
    """
    Release(f"megatron-core {megatron_version()}", TESTED_MEGATRON).check(module, names, where=MODULE)


def refuse_unsupported(config: object, keywords: Mapping[str, object]) -> None:
    """Return if a job of this configuration, called with these keywords, runs what its order states.

    Raises:
        UnsupportedEngineError: with the reason.
    """
    reasons = {name: told for name, told in _REFUSED.items() if getattr(config, name, False)}
    if _MULTIMODULE & {type(thing).__name__ for thing in keywords.values()}:
        reasons["a pipeline of several modules"] = (
            (
                "each has stages of its own, and backwards run in backward_step_multimodule, past the "
                "functions that perseus_ds listens to"
            ),
            "one schedule would have to hold the stages of all modules",
        )
    if _one_graph(config):
        reasons["a CUDA graph of the full iteration"] = (
            "there is no point where a clock could be asked for",
            "graphs of single layers are served",
        )
    for what, (why, change) in reasons.items():
        raise UnsupportedEngineError(
            f"{what} cannot be served: {why}; {change}", hint="train without it, or without us"
        )


def _one_graph(config: object) -> bool:
    """Whether one graph holds the iteration; the scope is a name in 0.14 and 0.15, enumerators from 0.16."""
    scope = getattr(config, "cuda_graph_scope", None) or ()
    scopes = [scope] if isinstance(scope, str) or not isinstance(scope, Sequence) else scope
    names = {getattr(one, "name", one) for one in scopes}
    implementation = getattr(config, "cuda_graph_impl", None)
    captures = implementation == "local" or getattr(config, "enable_cuda_graph", False)
    return implementation == "full_iteration" or (bool(captures) and "full_iteration" in names)
