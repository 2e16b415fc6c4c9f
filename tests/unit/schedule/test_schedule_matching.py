import pytest

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import (
    Instruction,
    Kind,
    first_forwards,
    last_backwards,
    match_instructions,
    textbook,
    with_rendezvous,
)


def order_of(text: str) -> tuple[Instruction, ...]:
    return tuple(map(Instruction.parse, text.split()))


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zbv", "dualpipe-v"])
def test_kinds_alone_tell_every_computation(name: str) -> None:
    for order in textbook(name, stages=4, microbatches=5).orders:
        assert match_instructions(order, [instruction.kind for instruction in order]) == order


def test_transfers_need_not_be_heard() -> None:
    bare = textbook("1f1b", stages=2, microbatches=3)
    for order, written in zip(bare.orders, with_rendezvous(bare).orders, strict=True):
        assert match_instructions(written, [instruction.kind for instruction in order]) == order


def test_what_the_order_has_not_bears_the_lowest_stage() -> None:
    order = order_of("1F0 2F0 2B0 1B0 2AR0 1AR0")
    kinds = [Kind.LOAD, *(i.kind for i in order), Kind.STEP, Kind.REDUCE_GRADS]
    assert " ".join(map(str, match_instructions(order, kinds))) == "1L0 1F0 2F0 2B0 1B0 2AR0 1AR0 1OS0 1AR2"


def test_computations_in_another_order_are_refused_where_they_differ() -> None:
    order = order_of("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3")
    kinds = [Kind(letter) for letter in "FFFBFBBB"]
    with pytest.raises(ScheduleError, match=rf"{' '.join('FFFBFB')}.* {' '.join('FFFFBB')}"):
        match_instructions(order, kinds)
    with pytest.raises(ScheduleError, match="8 computations"):
        match_instructions(order, [])


def test_where_frameworks_are_known_to_wait() -> None:
    order = order_of("0F0 0F1 3F0 3I0 3F1 3B1 3W0 0B0 0I1 0W1 0AR0")
    assert first_forwards(order) == set(order_of("0F0 3F0"))
    assert last_backwards(order) == set(order_of("3W0 0W1"))
