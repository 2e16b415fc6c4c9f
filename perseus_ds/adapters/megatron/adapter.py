"""A model that trains in megatron-core's schedules, as the runtime sees it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Protocol, Self

import torch
import torch.distributed as dist

from perseus_ds.adapters.megatron.hooks import Hooks, reducing
from perseus_ds.adapters.megatron.one_pass import OnePass
from perseus_ds.adapters.megatron.orders import check_table, left_out_of, order_of
from perseus_ds.adapters.megatron.seam import TESTED_MEGATRON, check, megatron_version, refuse_unsupported
from perseus_ds.runtime.adapter import InstructionListener, Place, SyncPoint, untested
from perseus_ds.runtime.joining import joined
from perseus_ds.runtime.matmul_weight import matmul_weight
from perseus_ds.runtime.module_words import modules_in_words
from perseus_ds.schedule import Order, Schedule, with_rendezvous

_SCRIPT = "megatron.training.global_vars"
_NAMES = {"rank0_energy_per_iteration_j": "iter-energy/gpu", "rank0_power_w": "power/gpu"}
_PLAIN = (bool, int, float, str, torch.dtype)


class _Board(Protocol):
    def add_scalar(self, name: str, value: float, iteration: int) -> None: ...


class _Log(Protocol):
    def log(self, values: Mapping[str, float], iteration: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Writers:
    """Megatron-LM's own TensorBoard and Weights & Biases writers, where its training script runs.

    The script makes them on the last rank; ``every`` is how often they are written to.

    Source: megatron/training/{global_vars,training}.py @ core_r0.16.0, which names both scalars.
    """

    board: _Board | None
    log: _Log | None
    every: int
    iteration: Callable[[], int]

    @classmethod
    def found(cls) -> Self | None:
        """Look for them; None where there are none, or Megatron's energy monitor writes (--log-energy)."""
        script = sys.modules.get(_SCRIPT)
        try:
            arguments = getattr(script, "get_args")()  # noqa: B009  # another release's names end nothing
            board = getattr(script, "get_tensorboard_writer")()  # noqa: B009
            log = getattr(script, "get_wandb_writer")()  # noqa: B009
        except (AttributeError, AssertionError):
            return None
        if (board is None and log is None) or getattr(arguments, "log_energy", False):
            return None
        every = getattr(arguments, "tensorboard_log_interval", None) or 1
        return cls(board, log, int(every), lambda: int(getattr(arguments, "curr_iteration", 0) or 0))

    def write(self, scalars: Mapping[str, float]) -> None:
        """Write what this rank's GPU took, under Megatron's names."""
        values = {name: scalars[ours] for ours, name in _NAMES.items() if ours in scalars}
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, self.iteration())
        if self.log is not None and values:
            self.log.log(values, self.iteration())


class MegatronAdapter:
    """The model chunks of this rank, and the first training pass over them."""

    name = "megatron"

    def __init__(self, first: OnePass) -> None:
        self._first = first
        self._hooks: Hooks | None = None
        self._reads_ahead = False
        self._writers = Writers.found()

    @property
    def sync_point(self) -> SyncPoint:
        """The reduction; none where nothing of Megatron's reduces, or FSDP gathers parameters in forwards."""
        reduces = reducing(self._first.chunks)
        sharded = any("fsdp" in type(one).__name__.lower() for one in reduces)
        return SyncPoint.REDUCTION if reduces and not sharded else SyncPoint.UNMARKED

    @property
    def local_rank(self) -> int:
        """As the launcher states, else as if there were one node."""
        return int(os.environ.get("LOCAL_RANK", dist.get_rank()))

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self._first.chunks[0].parameters()).device

    def place(self) -> Place:
        """Read stage and replica, and derive this rank's order."""
        check(self._first.module)
        refuse_unsupported(self._first.config, self._first.keywords)
        rank, ranks, replica = self._first.place()
        chunks = {number * ranks + rank: chunk for number, chunk in enumerate(self._first.chunks)}
        dtypes = {str(p.dtype).removeprefix("torch.") for c in chunks.values() for p in c.parameters()}
        order = self._order(rank, ranks, self._present.batch.microbatches)
        return Place(
            pipeline_rank=rank,
            replica=replica,
            order=order,
            parameters={stage: sum(p.numel() for p in one.parameters()) for stage, one in chunks.items()},
            weights={stage: float(matmul_weight(one)) for stage, one in chunks.items()},
            dtypes=" ".join(sorted(dtypes)),
            left_out=left_out_of(order, reducing(self._first.chunks)),
            modules=modules_in_words(self._first.chunks, device_type=self.device.type),
            untested=untested("megatron-core", megatron_version(), TESTED_MEGATRON),
            coupled=self._first.coupled,
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Join the orders of all pipeline ranks; in 1F1B both ends of a transfer wait for each other."""
        name = f"megatron.{self._first.name.removeprefix('forward_backward_')}"
        schedule = joined(places, name=name)
        return schedule if self._first.interleaved else with_rendezvous(schedule)

    def traits(self) -> Mapping[str, str]:
        """Return what else a measurement depends on."""
        state = self._first.module.parallel_state
        experts = state.get_expert_model_parallel_world_size()
        return {
            "tensor_parallel": str(state.get_tensor_model_parallel_world_size()),
            "context_parallel": str(state.get_context_parallel_world_size()),
            **({"expert_parallel": str(experts)} if experts > 1 else {}),
            "microbatch": self._first.batch.shape,
            "transformer": " ".join(sorted(_set_by_user(self._first.config))),
            "megatron": megatron_version(),
        }

    def install(self, listener: InstructionListener) -> None:
        """Put hooks into the module, for this model."""
        if self._hooks is None:
            self._hooks = Hooks(self._first.module, self._first.chunks, listener)
            self._hooks.reads_ahead = self._reads_ahead
        self._hooks.install()

    def read_ahead(self) -> bool:
        """Count the microbatches of a pass before it, on the first stage."""
        self._reads_ahead = True
        return True

    def remove(self) -> None:
        """Take them out again."""
        if self._hooks is not None:
            self._hooks.remove()

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Show what this rank's GPU takes in the training script's own writers."""
        if self._writers is not None:
            self._writers.write(scalars)

    @property
    def scalars_every(self) -> int | None:
        """As often as the script writes its own; None on ranks without a writer."""
        return None if self._writers is None else self._writers.every

    @property
    def _present(self) -> OnePass:
        """The training pass that began last."""
        return (self._hooks and self._hooks.present) or self._first

    def _order(self, rank: int, ranks: int, microbatches: int) -> Order:
        first = self._first
        chunks, group = len(first.chunks), None
        if first.interleaved:
            group = getattr(first.config, "microbatch_group_size_per_vp_stage", None) or ranks
        order = order_of(
            rank,
            ranks=ranks,
            microbatches=microbatches,
            chunks=chunks,
            group=group,
            reduces=bool(reducing(first.chunks)),
        )
        if group is not None:
            table = first.module.get_schedule_table(microbatches, chunks, group)
            check_table(table, order, ranks=ranks, chunks=chunks)
        return order


def _set_by_user(config: object) -> list[str]:
    """Every plain setting that is not at its default: what the model's time depends on, and little more."""
    if not is_dataclass(config):
        return []
    settings = {field.name: getattr(config, field.name, None) for field in fields(config)}
    defaults = {field.name: field.default for field in fields(config)}
    return [f"{n}={v}" for n, v in settings.items() if isinstance(v, _PLAIN) and v != defaults[n]]
