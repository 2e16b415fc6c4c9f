"""Standing between a schedule and its stages, on these instances, and leaving them as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perseus_ds.adapters.torch_pipelining import Hooks
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Load


class Stage:
    """As much of a stage as hooks touch."""

    is_last = True

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
    """As much of a schedule."""

    _n_microbatches = 2

    def __init__(self) -> None:
        self._has_backward = True
        self._stage = Stage()
        self.meanwhile: Callable[[], None] = lambda: None

    def step(self, fails: Exception | None = None) -> str:
        stage = self._stage
        assert stage.forward_one_chunk(0) == "out"
        self._maybe_compute_loss(stage)
        self.meanwhile()
        if fails is not None:
            raise fails
        if self._has_backward:
            stage.backward_one_chunk(0)
            stage.backward_one_chunk(1, full_backward=False)
            stage.backward_weight_one_chunk(1)
            stage.perform_reduce_grad(2)
        return "done"

    def _maybe_compute_loss(self, stage: Stage) -> None:
        stage.ran.append("loss")


class Noting:
    """Notes what it is called with, between the calls of the stage."""

    def __init__(self, ran: list[str], *, wants: bool = True, fails_at: Kind | None = None) -> None:
        self._ran, self._wants, self._fails_at = ran, wants, fails_at

    def iteration_begins(self, batch: Batch) -> bool:
        self._ran.append(f"begin {batch.microbatches}")
        return self._wants

    def before(self, kind: Kind, load: Load | None = None) -> None:
        if kind is self._fails_at:
            raise ValueError("the listener's own")
        self._ran.append(f"<{kind.value}")

    def after(self, kind: Kind) -> None:
        self._ran.append(f"{kind.value}>")

    def iteration_ends(self) -> None:
        self._ran.append("end")

    def other_schedule_begins(self) -> None:
        self._ran.append("other")

    def iteration_broke(self) -> None:
        self._ran.append("broke")


ALL = "begin 2 <F F0 loss F> <B B0 B> <I I1 I> <W W1 W> <AR AR AR> end"
BARE = "F0 loss B0 I1 W1 AR"


def hooks_of(schedule: Any, *, reduces: bool = True, **options: Any) -> Hooks:  # noqa: ANN401
    return Hooks(schedule, Noting(schedule._stage.ran, **options), reduces=reduces)


def hooked(**options: Any) -> tuple[Schedule, Hooks, list[str]]:  # noqa: ANN401
    schedule = Schedule()
    hooks = hooks_of(schedule, **options)
    hooks.install()
    return schedule, hooks, schedule._stage.ran


def test_every_instruction_lies_between_two_calls_and_the_loss_belongs_to_its_forward() -> None:
    schedule, _, ran = hooked()
    assert schedule.step() == "done"
    assert " ".join(ran) == ALL


def test_a_reduction_that_waits_for_nobody_is_not_listened_to() -> None:
    schedule, _, ran = hooked(reduces=False)
    schedule.step()
    assert " ".join(ran) == ALL.replace("<AR AR AR>", "AR")


def test_instructions_that_are_not_wanted_pass() -> None:
    schedule, _, ran = hooked(wants=False)
    schedule.step()
    assert " ".join(ran) == f"begin 2 {BARE} end"


def test_evaluation_is_another_schedule() -> None:
    schedule, _, ran = hooked()
    schedule._has_backward = False
    schedule.step()
    assert " ".join(ran) == "other F0 loss"


def test_an_exception_of_the_host_passes_unchanged() -> None:
    schedule, _, ran = hooked()
    error = RuntimeError("out of memory")
    with pytest.raises(RuntimeError) as raised:
        schedule.step(error)
    assert raised.value is error
    assert ran[-1] == "broke"


def test_removing_leaves_no_trace() -> None:
    schedule = Schedule()
    noted = schedule._stage.forward_one_chunk
    vars(schedule._stage)["forward_one_chunk"] = noted  # somebody else's, from before
    before, stage_before = dict(vars(schedule)), dict(vars(schedule._stage))
    hooks = hooks_of(schedule)
    hooks.install()
    hooks.remove()
    hooks.remove()
    assert (vars(schedule), vars(schedule._stage)) == (before, stage_before)
    assert vars(schedule._stage)["forward_one_chunk"] is noted


def test_removing_within_an_iteration_takes_effect_at_once() -> None:
    schedule, hooks, ran = hooked()
    schedule.meanwhile = hooks.remove
    schedule.step()
    assert " ".join(ran) == "begin 2 <F F0 loss F> B0 I1 W1 AR end"
    assert "step" not in vars(schedule)


def test_installing_twice_is_refused() -> None:
    _, hooks, _ = hooked()
    with pytest.raises(EngineError, match="already"):
        hooks.install()


def test_a_failing_listener_never_reaches_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    schedule, _, ran = hooked(fails_at=Kind.BACKWARD)
    assert schedule.step() == "done"
    assert " ".join(ran) == "begin 2 <F F0 loss F> B0 I1 W1 AR"
    assert capsys.readouterr().err.count("listener's own") == 1
    assert "step" not in vars(schedule)
