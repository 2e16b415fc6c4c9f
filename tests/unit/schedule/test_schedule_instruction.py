import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Instruction, Kind

numbers = st.integers(0, 10**6)
alone = [kind for kind in Kind if kind is not Kind.FORWARD_BACKWARD]
instructions = st.builds(Instruction, numbers, st.sampled_from(alone), numbers) | st.builds(
    Instruction, numbers, st.just(Kind.FORWARD_BACKWARD), numbers, st.tuples(numbers, numbers)
)


def test_prints_as_stage_kind_microbatch() -> None:
    assert str(Instruction(2, Kind.FORWARD, 0)) == "2F0"
    assert str(Instruction(10, Kind.SEND_GRAD, 7)) == "10SG7"
    assert str(Instruction(2, Kind.FORWARD_BACKWARD, 5, backward=(0, 3))) == "2F5+0B3"


@given(instructions)
def test_parses_back_what_it_printed(instruction: Instruction) -> None:
    assert Instruction.parse(str(instruction)) == instruction


@pytest.mark.parametrize(
    "text",
    [
        *["2F", "2Q0", "2f0", "-1F0", "2F0.5", "٢F0", "2FB0", "2F5+0F3", "2B5+0B3", "2F5+0B"],
        "",
        "F0",
        " 2F0",
        "2F0\n",
    ],
)
def test_refuses_other_text_and_says_the_kinds(text: str) -> None:
    with pytest.raises(ScheduleError, match="kinds: F"):
        Instruction.parse(text)


def test_letters_of_kinds_are_distinct_and_say_what_follows_the_clock() -> None:
    assert len({kind.value for kind in Kind}) == len(Kind)
    assert {kind.value for kind in Kind if kind.is_computation} == {"F", "B", "I", "W", "FB", "XC"}
    assert {kind.value for kind in Kind if kind.is_transfer} == {"SA", "RA", "SG", "RG"}
