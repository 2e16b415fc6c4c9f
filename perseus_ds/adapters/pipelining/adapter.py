"""One schedule of torch.distributed.pipelining, as the runtime sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from perseus_ds.adapters.pipelining.data_parallel import data_parallel_of
from perseus_ds.adapters.pipelining.hooks import Hooks
from perseus_ds.adapters.pipelining.orders import single_order, written_order
from perseus_ds.adapters.pipelining.seam import (
    TESTED_TORCH,
    PipelineSchedule,
    actions_of,
    classes_of,
    stages_of,
)
from perseus_ds.runtime.adapter import InstructionListener, Place, SyncPoint, untested
from perseus_ds.runtime.joining import joined
from perseus_ds.runtime.matmul_weight import matmul_weight
from perseus_ds.runtime.module_words import modules_in_words
from perseus_ds.schedule import Instruction, Order, Schedule, first_forwards, last_backwards


class PipeliningAdapter:
    """A schedule and the model stages that this rank holds; ``inputs`` are the first batch's shapes."""

    name = "pipelining"

    def __init__(self, schedule: PipelineSchedule, inputs: str = "") -> None:
        self._schedule = schedule
        self._stages = sorted(stages_of(schedule), key=lambda stage: stage.stage_index)
        self._inputs = inputs
        self._data_parallel = data_parallel_of(self._stages)
        self._hooks: Hooks | None = None

    @property
    def sync_point(self) -> SyncPoint:
        """FSDP2's reduction, where it is the last that a rank does and the only place to wait.

        With several chunks on a rank those reduced early make the others wait. DDP reduces within the last
        backward. Parameters resharded after every forward are gathered, and waited for, in the next.
        """
        alone = self._data_parallel.reduces and not self._data_parallel.gathers
        return SyncPoint.REDUCTION if alone and len(self._stages) == 1 else SyncPoint.UNMARKED

    @property
    def local_rank(self) -> int:
        """As the launcher states, else as if there were one node."""
        return int(os.environ.get("LOCAL_RANK", dist.get_rank()))

    @property
    def device(self) -> torch.device:
        """The stages' own."""
        return torch.device(self._stages[0].device)

    def place(self) -> Place:
        """Read stages, replica and this rank's own order."""
        parameters = {s.stage_index: list(s.submod.parameters()) for s in self._stages}
        dtypes = {str(p.dtype).removeprefix("torch.") for some in parameters.values() for p in some}
        order = self._order()
        return Place(
            pipeline_rank=self._stages[0].group_rank,
            replica=self._data_parallel.replica,
            order=order,
            parameters={stage: sum(p.numel() for p in some) for stage, some in parameters.items()},
            weights={s.stage_index: float(matmul_weight(s.submod)) for s in self._stages},
            dtypes=" ".join(sorted(dtypes)),
            inputs=self._inputs,
            left_out=self._waiting(order),
            modules=modules_in_words([s.submod for s in self._stages], device_type=self.device.type),
            untested=untested("torch", torch.__version__, TESTED_TORCH),
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Join the orders as every rank read them off its own schedule object."""
        name = f"torch.{type(self._schedule).__name__}"
        return joined(places, name=name)

    def traits(self) -> Mapping[str, str]:
        """Return what else a measurement depends on."""
        return {"data_parallel": self._data_parallel.in_words()}

    def install(self, listener: InstructionListener) -> None:
        """Put hooks into these instances.

        Raises:
            EngineError: there are some already.
        """
        hooks = Hooks(self._schedule, listener, reduces=self._data_parallel.reduces)
        hooks.install()
        self._hooks = hooks

    def remove(self) -> None:
        """Take them out again."""
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None

    @property
    def scalars_every(self) -> int | None:
        """Torch shows no scalars of its own."""
        return None

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Nobody looks."""

    def _order(self) -> Order:
        first, reduces = self._stages[0], self._data_parallel.reduces
        written = actions_of(self._schedule)
        if written is not None:
            return written_order(written[first.group_rank], reduces=reduces)
        return single_order(
            classes_of(self._schedule),
            rank=first.group_rank,
            ranks=first.group_size,
            microbatches=self._schedule._n_microbatches,  # noqa: SLF001  # the seam
            reduces=reduces,
        )

    def _waiting(self, order: Order) -> frozenset[Instruction]:
        """What is not to be measured: DDP's reduction, and FSDP2's first gathering, are waited for inside."""
        if self._data_parallel.replicas == 1:
            return frozenset()
        return last_backwards(order) if self._data_parallel.name == "DDP" else first_forwards(order)
