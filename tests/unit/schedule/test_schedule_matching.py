import pytest

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import (
    Instruction,
    Kind,
    Schedule,
    first_forwards,
    last_backwards,
    match_instructions,
    textbook,
    validate,
    with_rendezvous,
    with_repeats_named,
)


def order_of(text: str) -> tuple[Instruction, ...]:
    return tuple(map(Instruction.parse, text.split()))


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zbv", "dualpipe-v"])
def test_kinds_alone_tell_every_computation(name: str) -> None:
    for order in textbook(name, stages=4, microbatches=5).orders:
        assert match_instructions(order, [instruction.kind for instruction in order]) == order


def test_transfers_need_not_be_heard_and_what_the_order_has_not_bears_the_lowest_stage() -> None:
    bare = textbook("1f1b", stages=2, microbatches=3)
    for order, written in zip(bare.orders, with_rendezvous(bare).orders, strict=True):
        assert match_instructions(written, [instruction.kind for instruction in order]) == order
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


# Transfers that come twice for one microbatch: named by what they bring, the others for themselves.


def named(*orders: str) -> list[str]:
    """Read orders, name their repeats, and see that they run."""
    schedule = with_repeats_named(Schedule("two", 2, tuple(map(order_of, orders))))
    validate(schedule)
    return [" ".join(map(str, order)) for order in schedule.orders]


BACKWARDS = "0RG0 0B0 0RG1 0B1", "1B0 1SG0 1B1 1SG1"


@pytest.mark.parametrize(
    ("sent", "received", "sent_as", "received_as"),
    [
        (  # the reference first
            "0X0 0SA0 0F0 0SA1 0X1 0SA2 0F1 0SA3",
            "1RA0 1X0 1RA1 1F0 1RA2 1X1 1RA3 1F1",
            "0X0 0SA2 0F0 0SA0 0X1 0SA3 0F1 0SA1",
            "1RA2 1X0 1RA0 1F0 1RA3 1X1 1RA1 1F1",
        ),
        (  # the reference last
            "0F0 0SA0 0X0 0SA1 0F1 0SA2 0X1 0SA3",
            "1RA0 1F0 1RA1 1X0 1RA2 1F1 1RA3 1X1",
            "0F0 0SA0 0X0 0SA2 0F1 0SA1 0X1 0SA3",
            "1RA0 1F0 1RA2 1X0 1RA1 1F1 1RA3 1X1",
        ),
        (  # both at once
            "0F0 0SA0 0SA1 0F1 0SA2 0SA3",
            "1RA0 1RA1 1F0 1RA2 1RA3 1F1",
            "0F0 0SA0 0SA2 0F1 0SA1 0SA3",
            "1RA0 1RA2 1F0 1RA1 1RA3 1F1",
        ),
    ],
)
def test_repeats_bear_what_they_bring(sent: str, received: str, sent_as: str, received_as: str) -> None:
    found = named(f"{sent} {BACKWARDS[0]}", f"{received} {BACKWARDS[1]}")
    assert found == [f"{sent_as} {BACKWARDS[0]}", f"{received_as} {BACKWARDS[1]}"]


def test_one_transfer_each_stays_as_it_is_and_a_forward_that_nothing_is_brought_for_is_refused() -> None:
    schedule = with_rendezvous(textbook("1f1b", stages=4, microbatches=6))
    assert with_repeats_named(schedule) == schedule
    with pytest.raises(ScheduleError, match="0F0"):
        named(f"0SA0 0SA1 0SA2 0SA3 0F0 0F1 {BACKWARDS[0]}", f"1RA0 1RA1 1RA2 1RA3 1F0 1F1 {BACKWARDS[1]}")
