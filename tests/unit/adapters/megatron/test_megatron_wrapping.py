from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType

import pytest

from perseus_ds.adapters.megatron import PASSES, OnePass, Wrapping, wrappings_of

NAME = PASSES[1]


@pytest.fixture
def module() -> ModuleType:
    module = ModuleType("schedules")
    for name in PASSES:
        setattr(module, name, lambda *, calls, **_: calls.append("megatron"))
    return module


def saying(word: str) -> Callable[[OnePass, Callable[[], object]], object]:
    def around(present: OnePass, call: Callable[[], object]) -> object:
        present.keywords["calls"].append(word)  # type: ignore[attr-defined]
        return call()

    return around


def called(module: ModuleType, function: Callable[..., object] | None = None) -> list[str]:
    calls: list[str] = []
    (function or getattr(module, NAME))(calls=calls)
    return calls


def others(module: ModuleType, *, copies: bool) -> None:
    original = getattr(module, NAME)

    def theirs(**keywords: object) -> object:
        keywords["calls"].append("theirs")  # type: ignore[attr-defined]
        return original(**keywords)

    setattr(module, NAME, wraps(original)(theirs) if copies else theirs)


def test_several_stand_around_each_other(module: ModuleType) -> None:
    first, second = Wrapping(module, saying("first")), Wrapping(module, saying("second"))
    assert called(module) == ["second", "first", "megatron"]
    assert list(wrappings_of(module)) == [second, first]


@pytest.mark.parametrize("outer_first", [True, False])
def test_removed_in_any_order_the_modules_own_functions_are_back(
    module: ModuleType,
    outer_first: bool,  # noqa: FBT001
) -> None:
    before = dict(vars(module))
    pair = [Wrapping(module, saying("first")), Wrapping(module, saying("second"))]
    one, other = reversed(pair) if outer_first else pair
    one.remove()
    one.remove()
    assert called(module) == (["first", "megatron"] if outer_first else ["second", "megatron"])
    other.remove()
    assert dict(vars(module)) == before
    assert list(wrappings_of(module)) == []


def test_a_function_that_the_job_kept_calls_what_is_there_now(module: ModuleType) -> None:
    waiting = Wrapping(module, saying("waiting"))
    kept = getattr(module, NAME)
    waiting.remove()
    assert called(module, kept) == ["megatron"]
    serving = Wrapping(module, saying("serving"))
    assert called(module, kept) == ["serving", "megatron"]
    serving.remove()
    assert called(module, kept) == ["megatron"]


@pytest.mark.parametrize("copies", [True, False])
def test_other_peoples_wrappers_stay_and_nothing_runs_twice(module: ModuleType, copies: bool) -> None:  # noqa: FBT001
    waiting = Wrapping(module, saying("waiting"))
    others(module, copies=copies)
    waiting.remove()
    assert called(module) == ["theirs", "megatron"]
    serving = Wrapping(module, saying("serving"))
    assert called(module) == ["serving", "theirs", "megatron"]
    serving.remove()
    assert called(module) == ["theirs", "megatron"]


def test_what_the_host_raises_leaves_the_wrapper_usable(module: ModuleType) -> None:
    Wrapping(module, saying("serving"))
    with pytest.raises(TypeError):
        getattr(module, NAME)("positional", calls=[])
    assert called(module) == ["serving", "megatron"]
