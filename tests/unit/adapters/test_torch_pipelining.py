"""torch's orders in our words, and what is refused; the contract tests its hooks (`test_contract_alone`)."""

from collections.abc import Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perseus_ds.adapters.torch_pipelining import (
    SCHEDULE_NAMES,
    STAGE_NAMES,
    check,
    single_order,
    written_order,
)
from perseus_ds.errors import EngineError


def actions(text: str) -> Any:  # noqa: ANN401
    from torch.distributed.pipelining.schedules import _Action

    return [_Action.from_str(word) for word in text.split()]


def read(actions: Any, *, reduces: bool = False, at_once: bool = False) -> str:  # noqa: ANN401
    return " ".join(map(str, written_order(actions, reduces=reduces, at_once=at_once)))


@pytest.mark.parametrize(
    ("text", "reduces", "order"),
    [
        ("1UNSHARD 1RECV_F0 1F0 1I0 1SEND_B0 1W0 1REDUCE_GRAD 1RESHARD", True, "1F0 1I0 1W0 1AR0 1OS0"),
        ("0F0 0B0 0REDUCE_GRAD", False, "0F0 0B0 0OS0"),
        ("3F0 0F0 3B0 0B0", False, "3F0 0F0 3B0 0B0 0OS0"),
    ],
    ids=["transfers and gathering between", "a reduction that waits for nobody", "the lowest stage steps"],
)
def test_actions_are_read(text: str, order: str, *, reduces: bool) -> None:
    assert read(actions(text), reduces=reduces) == order


def test_overlapped_pairs_run_one_after_the_other_unless_a_function_runs_both() -> None:
    from torch.distributed.pipelining.schedules import _Action, _ComputationType

    pair = _Action(-1, _ComputationType.OVERLAP_F_B, None, tuple(actions("3F1 0B0")))
    assert read([pair]) == "3F1 0B0 0OS0"
    assert read([pair], at_once=True) == "3F1+0B0 0OS0"
    split = _Action(-1, _ComputationType.OVERLAP_F_B, None, tuple(actions("3F1 0I0")))
    with pytest.raises(EngineError, match="whole backward"):
        read([split], at_once=True)


def test_an_action_that_we_do_not_know_is_refused_by_name() -> None:
    kind = SimpleNamespace(name="COMPRESS")
    action = SimpleNamespace(stage_index=0, computation_type=kind, microbatch_index=0, sub_actions=None)
    with pytest.raises(EngineError, match="COMPRESS"):
        read([action])


def test_schedules_of_one_stage_are_derived_but_for_ones_own() -> None:
    order = single_order(["Mine", "Schedule1F1B"], rank=1, ranks=2, microbatches=2, reduces=True)
    assert " ".join(map(str, order)) == "1F0 1B0 1F1 1B1 1AR0 1OS0"
    with pytest.raises(EngineError, match="Mine"):
        single_order(["Mine", "PipelineScheduleSingle"], rank=0, ranks=2, microbatches=2, reduces=False)


# What is refused before anything is touched, and in which words.


def schedule(*, without: str = "", stage_without: str = "", **more: object) -> Any:  # noqa: ANN401
    stage = SimpleNamespace(**dict.fromkeys(STAGE_NAMES.keys() - {stage_without}))
    names = dict.fromkeys(SCHEDULE_NAMES.keys() - {without})
    return SimpleNamespace(**names | {"_stage": stage} | more)


@pytest.mark.parametrize(("names", "holder"), [(SCHEDULE_NAMES, "without"), (STAGE_NAMES, "stage_without")])
def test_a_missing_name_names_itself_its_use_and_the_release(names: Mapping[str, str], holder: str) -> None:
    assert check(whole := schedule()) is whole
    for name, use in names.items():
        with pytest.raises(EngineError, match=f"{name}, .*{use}") as refused:
            check(schedule(**{holder: name}))
        assert "2.13.0" in str(refused.value)


def test_a_schedule_without_stages_or_with_functions_of_ones_own_is_refused() -> None:
    kinds = Enum("Handled", ("OVERLAP_F_B", "FORWARD"))
    check(schedule(_comp_type_to_function_map={kinds.OVERLAP_F_B: None}))
    for bad, says in (
        ({"_stage": None}, "_stages"),
        ({"_comp_type_to_function_map": dict.fromkeys(kinds)}, "registered for FORWARD:"),
    ):
        with pytest.raises(EngineError, match=says):
            check(schedule(**bad))


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.12.1+cu128")
    with pytest.raises(EngineError, match=r"torch 2\.12\.1"):
        check(schedule())
