"""Between two instructions of DeepSpeed's pipeline nothing is computed: one mark is enough for both."""

from typing import Any

import pytest
from adapter_contract import Noting
from deepspeed_hosts import MICROBATCHES, one_f_one_b
from ranks import losses, run_ranks
from torch.utils._python_dispatch import TorchDispatchMode

from perseus_ds.adapters.deepspeed import DeepSpeedAdapter

pytestmark = pytest.mark.e2e


class Between(TorchDispatchMode):
    """Counts what is computed within instructions, and names what is between two of them."""

    def __init__(self, noting: Noting) -> None:
        super().__init__()
        self.noting, self.within, self.between = noting, 0, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        iterations = self.noting.iterations
        if self.noting.running is not None:
            self.within += 1
        elif iterations and iterations[-1].kinds and iterations[-1].ended is None:
            self.between.append(str(func))
        return func(*args, **(kwargs or {}))


def trained(_: int) -> tuple[int, list[str]]:
    engine, noting = one_f_one_b(2), Noting()
    DeepSpeedAdapter(engine, None).install(noting)
    with Between(noting) as counted:
        losses(engine, 2)
    return counted.within, counted.between


def test_nothing_is_computed_between_two_instructions() -> None:
    assert DeepSpeedAdapter.adjoining
    for one in run_ranks(2, trained):
        within, between = one.value
        assert within > 2 * MICROBATCHES
        assert between == []
