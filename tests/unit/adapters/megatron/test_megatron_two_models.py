"""Two models that train in one process: the first one's passes are measured, nobody else's."""

from __future__ import annotations

from types import ModuleType

import pytest
from torch import nn

from perseus_ds.adapters.megatron import PASSES, STEPS, Hooks
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Load


class Heard:
    """A listener that keeps what it is called for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def iteration_begins(self, batch: Batch) -> bool:
        self.calls.append(f"begins {batch.microbatches}")
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.calls.append(f"before {kind.value}")

    def after(self, kind: Kind) -> None:
        self.calls.append(f"after {kind.value}")

    def iteration_ends(self) -> None:
        self.calls.append("ends")

    def other_schedule_begins(self) -> None:
        self.calls.append("other")

    def iteration_broke(self) -> None:
        self.calls.append("broke")


@pytest.fixture
def schedules() -> ModuleType:
    """A stand-in of Megatron's schedules: a pass runs one forward and one backward, looked up at the call."""
    schedules = ModuleType("schedules")
    for step in STEPS:
        setattr(schedules, step, lambda: None)

    def a_pass(**_: object) -> None:
        for step in STEPS:
            getattr(schedules, step)()

    for name in PASSES:
        setattr(schedules, name, a_pass)
    return schedules


def test_a_second_model_runs_unmeasured_between_the_passes_of_the_first(
    schedules: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, heard = nn.Linear(1, 1), nn.Linear(1, 1), Heard()
    hooks = Hooks(schedules, [first], heard)
    hooks.install()
    train = getattr(schedules, PASSES[0])
    train(model=first, num_microbatches=1)
    measured = list(heard.calls)
    assert measured == ["begins 1", "before F", "after F", "before B", "after B", "ends"]
    train(model=second, num_microbatches=1)
    train(model=[second], num_microbatches=1)
    assert heard.calls == [*measured, "other", "other"]
    assert capsys.readouterr().err.count("second model") == 1
    train(model=first, num_microbatches=1, forward_only=True)
    train(model=first, num_microbatches=1)
    assert heard.calls[len(measured) :] == ["other", "other", "other", *measured]
    hooks.remove()
