"""The least turn that succeeds, with few attempts where the last one was near."""

import pytest

from perseus_ds.solver.timeline import least_turn

TURNS = 28


@pytest.mark.parametrize("begin", [0, 3, 9, TURNS - 1])
@pytest.mark.parametrize("least", [0, 1, 8, 9, 10, TURNS - 1])
def test_it_is_the_first_success_of_all_and_only_those_between_are_tried(begin: int, least: int) -> None:
    tried: list[int] = []

    def attempt(turn: int) -> str | None:
        tried.append(turn)
        return f"plan {turn}" if turn >= least else None

    assert least_turn(attempt, begin=begin, turns=TURNS) == (least, f"plan {least}")
    assert len(tried) == len(set(tried)) <= abs(begin - least) + 3


@pytest.mark.parametrize("least", range(TURNS))
def test_on_the_way_down_few_of_many_turns_are_tried(least: int) -> None:
    tried: list[int] = []

    def attempt(turn: int) -> bool | None:
        tried.append(turn)
        return True if turn >= least else None

    assert least_turn(attempt, begin=TURNS - 1, turns=TURNS) == (least, True)
    assert len(tried) <= 10


def test_where_none_succeeds_all_from_the_beginning_on_were_tried() -> None:
    tried: list[int] = []
    assert least_turn(tried.append, begin=4, turns=7) is None
    assert tried == [4, 5, 6]
