"""What is refused before anything is touched, and in which words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perseus_ds.adapters.base import RequiredName
from perseus_ds.adapters.torch_pipelining import SCHEDULE_NAMES, STAGE_NAMES, check
from perseus_ds.errors import EngineError


def schedule(*, without: str = "", stage_without: str = "", **more: object) -> Any:  # noqa: ANN401
    stage = SimpleNamespace(**{need.name: None for need in STAGE_NAMES if need.name != stage_without})
    names = {need.name: None for need in SCHEDULE_NAMES if need.name != without}
    return SimpleNamespace(**names | {"_stage": stage} | more)


def test_a_whole_schedule_is_served() -> None:
    one = schedule()
    assert check(one) is one


@pytest.mark.parametrize("need", SCHEDULE_NAMES, ids=lambda need: need.name)
def test_a_missing_name_of_the_schedule_names_itself(need: RequiredName) -> None:
    with pytest.raises(EngineError, match=f"{need.name}, .*{need.use}") as refused:
        check(schedule(without=need.name))
    assert "2.13.0" in str(refused.value)


@pytest.mark.parametrize("need", STAGE_NAMES, ids=lambda need: need.name)
def test_a_missing_name_of_a_stage_names_itself(need: RequiredName) -> None:
    with pytest.raises(EngineError, match=f"{need.name}, .*{need.use}"):
        check(schedule(stage_without=need.name))


def test_a_schedule_without_stages_is_refused() -> None:
    with pytest.raises(EngineError, match="_stages"):
        check(schedule(_stage=None))


def test_registered_functions_are_refused() -> None:
    names = ("OVERLAP_F_B", "FORWARD")
    handled = {_Hashable(name): print for name in names}
    with pytest.raises(EngineError, match="FORWARD, OVERLAP_F_B"):
        check(schedule(_comp_type_to_function_map=handled))


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.12.1+cu128")
    with pytest.raises(EngineError, match=r"torch 2\.12\.1"):
        check(schedule())


class _Hashable:
    def __init__(self, name: str) -> None:
        self.name = name
