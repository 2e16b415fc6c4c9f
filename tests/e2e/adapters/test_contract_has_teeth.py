"""An adapter that is broken in one way fails the contract's case for it; the same adapter whole passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import test_deepspeed_contract as whole
import torch.distributed as dist
from deepspeed_hosts import one_f_one_b

from perseus_ds.adapters import deepspeed as hooks
from perseus_ds.adapters.deepspeed import DeepSpeedAdapter
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, GuardedListener, InstructionListener, Place
from perseus_ds.schedule import Kind, Load

pytestmark = pytest.mark.e2e


class Relay:
    """Passes everything on; the faults below change one thing each."""

    def __init__(self, listener: InstructionListener) -> None:
        self.to = listener

    def iteration_begins(self, batch: Batch) -> bool:
        return self.to.iteration_begins(batch)

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.to.before(kind, load)

    def after(self, kind: Kind) -> None:
        self.to.after(kind)

    def iteration_ends(self) -> None:
        self.to.iteration_ends()

    def other_schedule_begins(self) -> None:
        self.to.other_schedule_begins()

    def iteration_broke(self) -> None:
        self.to.iteration_broke()

    def fail(self, error: Exception) -> bool:
        return self.to.fail(error)


class SwapsKinds(Relay):
    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.to.before(Kind.BACKWARD if kind is Kind.FORWARD else kind, load)

    def after(self, kind: Kind) -> None:
        self.to.after(Kind.BACKWARD if kind is Kind.FORWARD else kind)


class WantsAll(Relay):
    def iteration_begins(self, batch: Batch) -> bool:
        self.to.iteration_begins(batch)
        return True


class TakesEvaluationForTraining(Relay):
    def other_schedule_begins(self) -> None:
        self.to.iteration_begins(Batch(1))


class SilentWhenBroken(Relay):
    def iteration_broke(self) -> None: ...


class AnotherBatch(Relay):
    def iteration_begins(self, batch: Batch) -> bool:
        return self.to.iteration_begins(replace(batch, microbatches=batch.microbatches + 1))


class TellsAfterTheWork(Relay):
    def before(self, kind: Kind, load: Load | None = None) -> None: ...

    def after(self, kind: Kind) -> None:
        self.to.before(kind)
        self.to.after(kind)


def relayed(relay: type[Relay]) -> Callable[[type[DeepSpeedAdapter]], None]:
    return lambda broken: setattr(
        broken, "install", lambda self, listener: DeepSpeedAdapter.install(self, relay(listener))
    )


def changes_weights(broken: Any) -> None:  # noqa: ANN401
    def install(self: Any, listener: InstructionListener) -> None:  # noqa: ANN401
        DeepSpeedAdapter.install(self, listener)
        next(self._module.parameters()).data.mul_(1.0 + 1e-6)

    broken.install = install


def installs_twice(broken: Any) -> None:  # noqa: ANN401
    def install(self: Any, listener: InstructionListener) -> None:  # noqa: ANN401
        try:
            DeepSpeedAdapter.install(self, listener)
        except EngineError:
            return

    broken.install = install


def leaves_the_map(broken: Any) -> None:  # noqa: ANN401
    def remove(self: Any) -> None:  # noqa: ANN401
        handlers = self._engine._INSTRUCTION_MAP
        DeepSpeedAdapter.remove(self)
        self._engine._INSTRUCTION_MAP = handlers

    broken.remove = remove


class Open(GuardedListener):
    """Hands on whatever fails."""

    def run(self, act: Callable[[], Any], default: Any) -> Any:  # noqa: ANN401
        del default
        return act()

    def broke(self) -> None:
        self._listener.iteration_broke()


def lets_errors_through(broken: Any) -> None:  # noqa: ANN401
    def install(self: Any, listener: InstructionListener) -> None:  # noqa: ANN401
        hooks.GuardedListener = Open  # type: ignore[misc]  # in a process of the test's own
        DeepSpeedAdapter.install(self, listener)

    broken.install = install


def checks_nothing(broken: Any) -> None:  # noqa: ANN401
    def place(self: Any) -> Place:  # noqa: ANN401
        return Place(0, 0, (), {}, {}, str(type(self)))

    broken.place = place


def hears_the_other_engine(broken: Any) -> None:  # noqa: ANN401
    listeners: list[InstructionListener] = []

    class Shared(Relay):
        def iteration_begins(self, batch: Batch) -> bool:
            for listener in listeners:
                listener.iteration_begins(batch)
            return True

    def install(self: Any, listener: InstructionListener) -> None:  # noqa: ANN401
        listeners.append(listener)
        DeepSpeedAdapter.install(self, Shared(listener))

    broken.install = install


def placed(change: Callable[[Place], Place]) -> Callable[[type[DeepSpeedAdapter]], None]:
    return lambda broken: setattr(broken, "place", lambda self: change(DeepSpeedAdapter.place(self)))


def takes_its_rank_for_the_replica(place: Place) -> Place:
    return replace(place, replica=dist.get_rank())


def takes_all_ranks_for_replicas_of_one_another(place: Place) -> Place:
    return replace(place, pipeline_rank=0)


def weighs_all_alike(place: Place) -> Place:
    return replace(place, weights=dict.fromkeys(place.weights, 1.0))


def ignores_the_modules(place: Place) -> Place:
    return replace(place, modules="plain")


def tells_traits_of_its_own(broken: Any) -> None:  # noqa: ANN401
    broken.traits = lambda self: {**DeepSpeedAdapter.traits(self), "stage": str(self.place().pipeline_rank)}


FAULTS: tuple[tuple[str, Callable[[Any], None]], ...] = (
    ("test_events_come_in_the_derived_order", relayed(SwapsKinds)),
    ("test_events_come_in_the_derived_order", relayed(AnotherBatch)),
    ("test_what_ranks_tell_makes_one_job", placed(takes_its_rank_for_the_replica)),
    ("test_what_ranks_tell_makes_one_job", placed(takes_all_ranks_for_replicas_of_one_another)),
    ("test_what_ranks_tell_makes_one_job", placed(weighs_all_alike)),
    ("test_what_ranks_tell_makes_one_job", tells_traits_of_its_own),
    ("test_work_lies_between_its_marks", relayed(TellsAfterTheWork)),
    ("test_a_model_that_is_run_otherwise_is_another_job", placed(ignores_the_modules)),
    ("test_an_iteration_that_is_not_wanted_is_not_announced", relayed(WantsAll)),
    ("test_evaluation_stands_apart", relayed(TakesEvaluationForTraining)),
    ("test_losses_and_weights_are_identical_to_the_last_bit", changes_weights),
    ("test_the_hosts_exception_passes_unchanged", relayed(SilentWhenBroken)),
    ("test_installing_twice_is_refused", installs_twice),
    ("test_removing_restores_the_identity_of_every_attribute", leaves_the_map),
    ("test_removing_within_an_iteration_lets_it_run_to_its_end", leaves_the_map),
    ("test_a_failing_listener_never_reaches_the_host", lets_errors_through),
    ("test_counting_that_fails_never_reaches_the_host", lets_errors_through),
    ("test_the_hosts_exception_wins_over_ours", lets_errors_through),
    ("test_a_missing_name_names_itself", checks_nothing),
    ("test_of_two_engines_each_is_heard_by_its_own_listener", hears_the_other_engine),
)


@pytest.mark.parametrize(("case", "fault"), FAULTS)
def test_a_broken_adapter_fails_its_case(case: str, fault: Callable[[Any], None]) -> None:
    broken = type("BrokenAdapter", (DeepSpeedAdapter,), {})
    fault(broken)

    class BrokenHost(whole.EngineHost):
        def adapter(self) -> DeepSpeedAdapter:
            return broken(self.engine, self.schedule)

    class Contract(whole.TestOneForwardOneBackward):
        def host(self, *, ranks: int) -> whole.EngineHost:
            return BrokenHost(one_f_one_b(ranks))

    with pytest.raises(AssertionError):
        getattr(Contract(), case)()


def test_a_door_that_imports_its_framework_fails_its_case() -> None:
    class Contract(whole.TestOneForwardOneBackward):
        door = "deepspeed"

    with pytest.raises(AssertionError):
        Contract().test_the_door_imports_nothing_of_the_framework()


def test_every_case_has_its_fault() -> None:
    cases = {name for name in vars(whole.TestOneForwardOneBackward.__mro__[1]) if name.startswith("test_")}
    assert cases == {case for case, _ in FAULTS} | {"test_the_door_imports_nothing_of_the_framework"}
