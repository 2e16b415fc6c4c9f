"""The order of a user's loop: numbered as it ran, refused where it cannot be distinguished."""

import pytest

from perseus_ds.adapters.deepspeed_zero import FirstIteration, order_of, resize_order
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Schedule, validate

F, B, AR, OS = Kind.FORWARD, Kind.BACKWARD, Kind.REDUCE_GRADS, Kind.STEP


def test_the_nth_of_a_kind_is_that_of_microbatch_n() -> None:
    order = order_of([F, B, AR, F, B, AR, OS])
    assert " ".join(map(str, order)) == "0F0 0B0 0AR0 0F1 0B1 0AR1 0OS0"
    validate(Schedule("zero-2", 2, (order,)))


def test_a_microbatch_that_was_skipped_is_none_of_the_order() -> None:
    for kinds in ([F, F, B, F, B, AR, OS], [F, B, F, F, F, B, AR, OS]):
        assert order_of(kinds) == order_of([F, B] * 2 + [AR, OS])


@pytest.mark.parametrize("kinds", [[F, F, B, OS], [F, F, B, F, F, B, OS], [B, OS], [OS], []])
def test_a_loop_that_cannot_be_told_apart_is_refused(kinds: list[Kind]) -> None:
    with pytest.raises(EngineError, match="forwards and"):
        order_of(kinds)


def test_an_iteration_that_broke_is_noted_anew() -> None:
    first = FirstIteration()
    for kinds in ([F], [F, B, OS]):
        first.iteration_begins(Batch(1))
        for kind in kinds:
            first.before(kind)
            first.after(kind)
    assert not first.ended
    first.iteration_ends()
    assert first.kinds == [F, B, OS]


def test_the_loop_over_another_number_of_microbatches_is_the_same_loop() -> None:
    always, at_the_end = [F, B, AR] * 2 + [OS], [F, B, F, B, AR, OS]
    assert resize_order(order_of(always), 3) == order_of([F, B, AR] * 3 + [OS])
    assert resize_order(order_of(at_the_end), 4) == order_of([F, B] * 4 + [AR, OS])
    assert resize_order(order_of(at_the_end), 1) == order_of([F, B, AR, OS])
    assert resize_order(order_of(always), 2) == order_of(always)
    with pytest.raises(EngineError, match="ran 1"):
        resize_order(order_of([F, B, AR, OS]), 2)
