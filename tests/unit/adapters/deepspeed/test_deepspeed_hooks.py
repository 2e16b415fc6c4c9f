"""Standing between an engine and its instructions, on one instance, and leaving it as it was."""

from __future__ import annotations

from typing import Any

import pytest

from perseus_ds.adapters.deepspeed import Hooks
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Load


class ForwardPass:
    pass


class CommitP2P:
    pass


class OptimizerStep:
    pass


class InferenceSchedule:
    micro_batches, stages = 4, 1

    def steps(self) -> list[list[object]]:
        return [[ForwardPass()]]


class TrainSchedule(InferenceSchedule):
    def steps(self) -> list[list[object]]:
        return [[ForwardPass(), OptimizerStep()]]


class Engine:
    """As much of a pipeline engine as hooks touches."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.fails: Exception | None = None

    def forward(self, buffer_id: int) -> str:
        if self.fails is not None:
            raise self.fails
        self.ran.append(f"F{buffer_id}")
        return "done"

    def commit(self) -> None:
        self.ran.append("C")

    def _exec_schedule(self, schedule: object) -> None:
        handlers = self._INSTRUCTION_MAP
        handlers[ForwardPass](self, 0)  # type: ignore[call-arg]
        handlers[CommitP2P](self)  # type: ignore[call-arg]

    _INSTRUCTION_MAP: dict[type, Any] = {ForwardPass: forward, CommitP2P: commit}  # noqa: RUF012


class Noting:
    """Notes what it is called with."""

    def __init__(self, *, wants: bool = True) -> None:
        self.observed: list[str] = []
        self.wants = wants

    def iteration_begins(self, batch: Batch) -> bool:
        assert batch == Batch(4)
        self.observed.append("begins")
        return self.wants

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.observed.append(f"before {kind.value}")

    def after(self, kind: Kind) -> None:
        self.observed.append(f"after {kind.value}")

    def iteration_ends(self) -> None:
        self.observed.append("ends")

    def other_schedule_begins(self) -> None:
        self.observed.append("other")

    def iteration_broke(self) -> None:
        self.observed.append("broke")


def intercepted(listener: Noting) -> tuple[Any, Hooks]:
    engine = Engine()
    hooks = Hooks(engine, listener)  # type: ignore[arg-type]
    hooks.install()
    return engine, hooks


def test_training_is_listened_to() -> None:
    listener = Noting()
    engine, _ = intercepted(listener)
    engine._exec_schedule(TrainSchedule())
    assert listener.observed == ["begins", "before F", "after F", "before CM", "after CM", "ends"]
    assert engine.ran == ["F0", "C"]


def test_an_iteration_that_is_not_wanted_runs_unheard() -> None:
    listener = Noting(wants=False)
    engine, _ = intercepted(listener)
    engine._exec_schedule(TrainSchedule())
    assert listener.observed == ["begins", "ends"]
    assert engine.ran == ["F0", "C"]


def test_evaluation_is_announced_and_not_listened_to() -> None:
    listener = Noting()
    engine, _ = intercepted(listener)
    engine._exec_schedule(InferenceSchedule())
    assert listener.observed == ["other"]
    assert engine.ran == ["F0", "C"]


def test_the_hosts_exception_passes_through_unchanged() -> None:
    listener = Noting()
    engine, _ = intercepted(listener)
    engine.fails = KeyError("the user's own")
    with pytest.raises(KeyError) as raised:
        engine._exec_schedule(TrainSchedule())
    assert raised.value is engine.fails
    assert listener.observed == ["begins", "before F", "broke"]


def test_handlers_return_what_they_returned() -> None:
    engine, _ = intercepted(Noting())
    assert engine._INSTRUCTION_MAP[ForwardPass](engine, 3) == "done"
    assert engine._INSTRUCTION_MAP[ForwardPass].__wrapped__ is Engine._INSTRUCTION_MAP[ForwardPass]


def test_no_class_is_touched_and_removing_leaves_nothing() -> None:
    before = dict(vars(Engine))
    engine, hooks = intercepted(Noting())
    other = Engine()
    assert dict(vars(Engine)) == before
    assert set(vars(other)) == {"ran", "fails"}
    hooks.remove()
    hooks.remove()
    assert set(vars(engine)) == {"ran", "fails"}


def test_what_stood_on_the_instance_before_comes_back() -> None:
    engine = Engine()
    own = dict(Engine._INSTRUCTION_MAP)
    engine._INSTRUCTION_MAP = own
    hooks = Hooks(engine, Noting())  # type: ignore[arg-type]
    hooks.install()
    assert engine._INSTRUCTION_MAP is not own
    hooks.remove()
    assert engine._INSTRUCTION_MAP is own


def test_removing_within_an_iteration_lets_it_run_to_its_end() -> None:
    class Leaving(Noting):
        def before(self, kind: Kind, load: Load | None = None) -> None:
            super().before(kind)
            hooks.remove()

    listener = Leaving()
    engine, hooks = intercepted(listener)
    engine._exec_schedule(TrainSchedule())
    assert engine.ran == ["F0", "C"]
    assert listener.observed[:2] == ["begins", "before F"]
    listener.observed.clear()
    engine._exec_schedule(TrainSchedule())
    assert listener.observed == []


def test_what_does_nothing_on_a_stage_is_not_announced() -> None:
    listener, engine = Noting(), Engine()
    Hooks(engine, listener, silent={Kind.FORWARD}).install()  # type: ignore[arg-type]
    engine._exec_schedule(TrainSchedule())
    assert listener.observed == ["begins", "before CM", "after CM", "ends"]
    assert engine.ran == ["F0", "C"]
