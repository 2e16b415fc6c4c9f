"""torch's own representation in our words, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perseus_ds.adapters.torch_pipelining import single_order, written_order
from perseus_ds.errors import EngineError


def actions(text: str) -> Any:  # noqa: ANN401
    from torch.distributed.pipelining.schedules import _Action

    return [_Action.from_str(word) for word in text.split()]


def read(actions: Any, *, reduces: bool = False) -> str:  # noqa: ANN401
    return " ".join(map(str, written_order(actions, reduces=reduces)))


def test_transfers_and_gathering_lie_between_what_is_run_around() -> None:
    text = "1UNSHARD 1RECV_F0 1F0 1I0 1SEND_B0 1W0 1REDUCE_GRAD 1RESHARD"
    assert read(actions(text), reduces=True) == "1F0 1I0 1W0 1AR0 1OS0"


def test_a_reduction_that_waits_for_nobody_is_left_out() -> None:
    assert read(actions("0F0 0B0 0REDUCE_GRAD")) == "0F0 0B0 0OS0"


def test_overlapped_pairs_run_one_after_the_other() -> None:
    from torch.distributed.pipelining.schedules import _Action, _ComputationType

    pair = _Action(-1, _ComputationType.OVERLAP_F_B, None, tuple(actions("3F1 0B0")))
    assert read([pair]) == "3F1 0B0 0OS0"


def test_the_step_bears_the_lowest_stage_of_the_rank() -> None:
    assert read(actions("3F0 0F0 3B0 0B0")).endswith("0OS0")


def test_an_action_that_we_do_not_know_is_refused_by_name() -> None:
    class Kind:
        name = "COMPRESS"

    class Action:
        stage_index, computation_type, microbatch_index, sub_actions = 0, Kind(), 0, None

    with pytest.raises(EngineError, match="COMPRESS"):
        read([Action()])


def test_single_schedules_are_derived() -> None:
    names = ["Mine", "Schedule1F1B", "object"]
    order = single_order(names, rank=1, ranks=2, microbatches=2, reduces=True)
    assert " ".join(map(str, order)) == "1F0 1B0 1F1 1B1 1AR0 1OS0"


def test_a_schedule_of_ones_own_that_is_written_down_nowhere_is_refused() -> None:
    with pytest.raises(EngineError, match="Mine"):
        single_order(["Mine", "PipelineScheduleSingle"], rank=0, ranks=2, microbatches=2, reduces=False)
