"""Between two instructions of DeepSpeed's pipeline nothing is computed: one mark is enough for both."""

from typing import Any

import pytest
from deepspeed_hosts import MICROBATCHES, one_f_one_b
from ranks import batches, run_ranks
from torch.utils._python_dispatch import TorchDispatchMode

from perseus_ds.adapters.deepspeed import DeepSpeedAdapter, Hooks
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Load

pytestmark = pytest.mark.e2e


class Between(TorchDispatchMode):
    """Counts what is computed within instructions, and names what is between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.within = self.instructions = 0
        self.between: list[str] = []
        self._runs = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if self._runs:
            self.within += 1
        elif self.instructions:
            self.between.append(str(func))
        return func(*args, **(kwargs or {}))

    def iteration_begins(self, batch: Batch) -> bool:
        self.instructions = 0
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self._runs = True
        self.instructions += 1

    def after(self, kind: Kind) -> None:
        self._runs = False

    def iteration_ends(self) -> None:
        self.instructions = 0

    def other_schedule_begins(self) -> None:
        """There is none."""

    iteration_broke = other_schedule_begins


def trained(_: int) -> tuple[int, list[str]]:
    engine = one_f_one_b(2)
    listener = Between()
    Hooks(engine, listener).install()
    with listener:
        for _ in range(2):
            engine.train_batch(batches())
    return listener.within, listener.between


def test_nothing_is_computed_between_two_instructions() -> None:
    assert DeepSpeedAdapter.adjoining
    for one in run_ranks(2, trained):
        within, between = one.value
        assert within > 2 * MICROBATCHES
        assert between == []
