"""Announcements around a stage's calls, and torch's orders in our words; replicas: `tests/e2e/pipelining`."""

from collections.abc import Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from adapter_contract import CallNotes

from perseus_ds.adapters import torch_pipelining
from perseus_ds.adapters.torch_pipelining import (
    SCHEDULE_NAMES,
    STAGE_NAMES,
    DataParallel,
    PipeliningAdapter,
    check,
    single_order,
    written_order,
)
from perseus_ds.errors import EngineError

# Instructions that are announced around a stage's calls; the rest is the contract's (`test_contract_alone`).


class NotedStage:
    """As much of a stage as hooks touch."""

    is_last, stage_index = True, 0

    def __init__(self) -> None:
        self.ran: list[str] = []

    def forward_one_chunk(self, chunk: int) -> str:
        self.ran.append(f"F{chunk}")
        return "out"

    def backward_one_chunk(self, chunk: int, *, full_backward: bool = True) -> None:
        self.ran.append(f"{'B' if full_backward else 'I'}{chunk}")

    def backward_weight_one_chunk(self, chunk: int) -> None:
        self.ran.append(f"W{chunk}")

    def perform_reduce_grad(self, scale: int) -> None:
        self.ran.append("AR")


class Schedule:
    _n_microbatches = 2

    def __init__(self) -> None:
        self._has_backward = True
        self._stage = NotedStage()

    def step(self) -> str:
        stage = self._stage
        assert stage.forward_one_chunk(0) == "out"
        self._maybe_compute_loss(stage)
        if self._has_backward:
            stage.backward_one_chunk(0)
            stage.backward_one_chunk(1, full_backward=False)
            stage.backward_weight_one_chunk(1)
            stage.perform_reduce_grad(2)
        return "done"

    def _maybe_compute_loss(self, stage: NotedStage) -> None:
        stage.ran.append("loss")


ALL = "begins 2 <F F0 loss F> <B B0 B> <I I1 I> <W W1 W> <AR AR AR> ends"


def hooked(*, reduces: bool) -> tuple[Schedule, list[str]]:
    schedule = Schedule()
    with patch.object(torch_pipelining, "data_parallel_of", lambda _: DataParallel("FSDP2", reduces=reduces)):
        PipeliningAdapter(schedule).install(CallNotes(schedule._stage.ran))
    return schedule, schedule._stage.ran


@pytest.mark.parametrize("reduces", [True, False])
def test_every_instruction_lies_between_two_calls(*, reduces: bool) -> None:
    """The loss belongs to its forward; a reduction that waits for nobody is none; evaluation is apart."""
    schedule, ran = hooked(reduces=reduces)
    assert schedule.step() == "done"
    assert " ".join(ran) == (ALL if reduces else ALL.replace("<AR AR AR>", "AR"))
    ran.clear()
    schedule._has_backward = False
    schedule.step()
    assert " ".join(ran) == "other F0 loss"


# torch's own representation in our words, and what is refused.


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
