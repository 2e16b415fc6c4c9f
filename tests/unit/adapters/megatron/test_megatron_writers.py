"""Scalars in the writers of Megatron's own training script, which a stand-in of its module hands out."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from perseus_ds.adapters.megatron import Writers

SHOWN = {"rank0_energy_per_iteration_j": 812.0, "rank0_power_w": 290.0, "plan": 3.0}


class Rows(list[tuple[object, ...]]):
    """What a writer was given."""

    def add_scalar(self, *row: object) -> None:
        self.append(row)

    def log(self, *row: object) -> None:
        self.append(row)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module, made = ModuleType("global_vars"), SimpleNamespace(board=Rows(), log=None)
    made.arguments = SimpleNamespace(log_energy=False, tensorboard_log_interval=5, curr_iteration=70)
    module.get_args = lambda: made.arguments  # type: ignore[attr-defined]
    module.get_tensorboard_writer = lambda: made.board  # type: ignore[attr-defined]
    module.get_wandb_writer = lambda: made.log  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", module)
    return made


def test_both_writers_get_megatrons_own_names(script: SimpleNamespace) -> None:
    script.log = Rows()
    writers = Writers.found()
    assert writers is not None
    assert writers.every == 5
    writers.write(SHOWN)
    assert script.board == [("iter-energy/gpu", 812.0, 70), ("power/gpu", 290.0, 70)]
    assert script.log == [({"iter-energy/gpu": 812.0, "power/gpu": 290.0}, 70)]
    script.arguments.curr_iteration = 75
    writers.write({"rank0_power_w": 291.0})
    assert script.board[-1] == ("power/gpu", 291.0, 75)


def test_megatrons_own_monitor_is_not_doubled(script: SimpleNamespace) -> None:
    script.arguments.log_energy = True
    assert Writers.found() is None


def test_ranks_without_a_writer_show_nothing(script: SimpleNamespace) -> None:
    script.board = None
    assert Writers.found() is None


def test_another_script_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", ModuleType("global_vars"))
    assert Writers.found() is None
    monkeypatch.delitem(sys.modules, "megatron.training.global_vars")
    assert Writers.found() is None
