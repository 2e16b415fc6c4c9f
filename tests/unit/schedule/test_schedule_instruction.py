import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Instruction, Kind

instructions = st.builds(
    Instruction, st.integers(0, 10**6), st.sampled_from(list(Kind)), st.integers(0, 10**6)
)


def test_prints_as_stage_kind_microbatch() -> None:
    assert str(Instruction(2, Kind.FORWARD, 0)) == "2F0"
    assert str(Instruction(10, Kind.SEND_GRAD, 7)) == "10SG7"


@given(instructions)
def test_parses_back_what_it_printed(instruction: Instruction) -> None:
    assert Instruction.parse(str(instruction)) == instruction


@pytest.mark.parametrize(
    "text", ["", "F0", "2F", "2Q0", "2f0", " 2F0", "2F0\n", "-1F0", "2F0.5", "٢F0", "2FB0"]
)
def test_refuses_other_text_and_says_the_kinds(text: str) -> None:
    with pytest.raises(ScheduleError, match="kinds: F"):
        Instruction.parse(text)


def test_letters_of_kinds_are_distinct_and_say_what_follows_the_clock() -> None:
    assert len({kind.value for kind in Kind}) == len(Kind)
    assert {kind.value for kind in Kind if kind.is_computation} == {"F", "B", "I", "W", "XC"}
    assert {kind.value for kind in Kind if kind.is_transfer} == {"SA", "RA", "SG", "RG"}
