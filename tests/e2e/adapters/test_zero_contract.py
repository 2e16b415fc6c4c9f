"""DeepSpeed without a pipeline keeps the contract of adapters: ZeRO-0 to 3, and ``loss.backward()``."""

from collections.abc import Collection
from unittest.mock import MagicMock

import pytest
from adapter_contract import AdapterContract, Noting
from deepspeed_hosts import ZeroHost, zero_engine

from perseus_ds.schedule import Kind

pytestmark = pytest.mark.e2e


class ZeroContract(AdapterContract):
    stage = 0
    torch_style = False
    marked: Collection[Kind] = frozenset(Kind)
    required = ("allreduce_gradients", "_take_model_step", "step", "data_parallel_group", "mp_world_size")
    counting = ("perseus_ds.adapters.deepspeed_zero.count_load",)

    def host(self, *, ranks: int) -> ZeroHost:
        return ZeroHost(zero_engine(self.stage), torch_style=self.torch_style)


class TestZero1(ZeroContract):
    stage = 1


class TestZero3(ZeroContract):
    stage = 3


@pytest.mark.parametrize(("stage", "torch_style"), [(0, False), (1, True), (2, False)])
def test_the_other_stages_run_in_order_and_change_nothing(stage: int, torch_style: bool) -> None:  # noqa: FBT001
    contract = type("Contract", (ZeroContract,), {"stage": stage, "torch_style": torch_style})()
    contract.test_events_come_in_the_derived_order()
    contract.test_losses_and_weights_are_identical_to_the_last_bit()
    contract.test_evaluation_stands_apart()


def test_the_iteration_after_one_that_broke_is_heard_whole() -> None:
    """As a loop does that catches a bad batch and goes on with the next one."""

    def body(_: int) -> list[tuple[str | None, list[Kind]]]:
        noting = Noting()
        host, _ = ZeroContract().installed(noting)
        host.train()
        refuses = MagicMock(side_effect=KeyError("a bad batch"))
        bad = next(iter(host.modules().values())).register_forward_pre_hook(refuses)
        with pytest.raises(KeyError):
            host.train()
        bad.remove()
        host.train()
        return [(one.ended, one.kinds) for one in noting.iterations]

    (whole, broken, again) = ZeroContract().run(body, ranks=1)[0]
    assert broken == ("broke", [Kind.FORWARD])
    assert again == whole
    assert whole[0] == "ends"
