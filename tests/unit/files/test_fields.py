"""Fields of other people's JSON: what is a number, what is a whole one, what is text."""

import math

import pytest

from perseus_ds.errors import PerseusError
from perseus_ds.files import mapping, real, text, whole


@pytest.mark.parametrize("value", [0, 5, 10])
def test_a_whole_number_is_in_its_range(value: int) -> None:
    assert whole({"n": value}, "n", least=0, most=10) == value


@pytest.mark.parametrize("value", [-1, 11, True, False, 5.0, "5", None, [5], {}])
def test_nothing_else_is_a_whole_number(value: object) -> None:
    with pytest.raises(PerseusError, match=r"n is.*whole"):
        whole({"n": value}, "n", least=0, most=10)


@pytest.mark.parametrize("value", [0, 0.5, 10, 10.0])
def test_a_number_is_in_its_range(value: float) -> None:
    found = real({"n": value}, "n", least=0, most=10)
    assert (found, type(found)) == (value, float)


@pytest.mark.parametrize("value", [-1e-9, 10.001, True, False, math.nan, math.inf, "5", None, [5], {}])
def test_nothing_else_is_a_number(value: object) -> None:
    with pytest.raises(PerseusError, match=r"n is"):
        real({"n": value}, "n", least=0, most=10)


def test_text_is_no_longer_than_allowed() -> None:
    assert text({"t": "abc"}, "t", most=3) == "abc"
    for wrong in ("abcd", 3, None, ["abc"]):
        with pytest.raises(PerseusError, match="3 characters"):
            text({"t": wrong}, "t", most=3)


def test_what_is_missing_is_named() -> None:
    for read in (lambda c: text(c, "t"), lambda c: whole(c, "t", least=0, most=1)):
        with pytest.raises(PerseusError, match="no t"):
            read({})
    with pytest.raises(PerseusError):
        mapping([], "it")


def test_what_is_shown_is_never_long() -> None:
    for value in ("x" * 5000, list(range(5000)), {n: n for n in range(5000)}):
        with pytest.raises(PerseusError) as refused:
            whole({"n": value}, "n", least=0, most=1)
        assert len(str(refused.value)) < 120
