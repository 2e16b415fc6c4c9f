"""A user's function gives loads, or one line says why it is not asked again; training goes on either way."""

import math
import sys
from itertools import count, repeat
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from adapter_contract import Noting

import perseus_ds
from perseus_ds.errors import ConfigError
from perseus_ds.runtime import user_loads
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.user_loads import LoadFunction, UserLoads, given_by_all, load_function
from perseus_ds.schedule import Load


def asked(function: LoadFunction, iterations: int = 2) -> tuple[list[Batch], list[str]]:
    """Batches of two microbatches as they reach the listener, and the lines said."""
    noting, log = Noting(), MagicMock()
    loads = UserLoads(noting, function, log=log, rank=3)
    for _ in range(iterations):
        loads.iteration_begins(Batch(2, "2 x 8"))
        loads.iteration_ends()
    loads.close()
    return [one.batch for one in noting.iterations], [call.args[0] for call in log.line_here.call_args_list]


def test_batches_have_the_loads_that_the_function_gives() -> None:
    batches, said = asked(lambda iteration, microbatches: [10 + iteration, [3, 4][:microbatches]])
    assert [one.loads for one in batches] == [(Load(10, 100), Load(7, 25)), (Load(11, 121), Load(7, 25))]
    assert [one.shape for one in batches] == ["2 x 8"] * 2
    assert said == []


def test_tensors_and_arrays_are_taken() -> None:
    """A tensor's entries are tensors without dimensions."""
    for answer in (torch.tensor([3, 4]), np.array([3, 4]), [torch.tensor([3.0]), np.array([4])]):
        batches, said = asked(lambda *_, answer=answer: answer, 1)
        assert batches[0].loads == (Load(3, 9), Load(4, 16))
        assert said == []


BAD: dict[str, tuple[Any, str]] = {
    "raises": (lambda *_: {}["no"], "raised KeyError('no')"),
    "negative": (lambda *_: [5, -1], "microbatch 1: a length is -1.0 (expected 0 or more)"),
    "negative length": (lambda *_: [5, [3, -2]], "microbatch 1: a length is -2"),
    "missing": (lambda *_: [5, None], "None for microbatch 1 (expected tokens, or a list of lengths)"),
    "infinite": (lambda *_: [float("inf"), 5], "microbatch 0: a load's tokens are inf"),
    "not finite": (lambda *_: [float("nan"), 5], "microbatch 0: a load's tokens are nan"),
    "fewer than microbatches": (lambda *_: [5], "returned 1 load for 2 microbatches"),
    "more than microbatches": (lambda *_: [5] * 3, "returned more than 2 loads for 2 microbatches"),
    "without end": (lambda *_: count(), "returned more than 2 loads for 2 microbatches"),
    "lengths without end": (lambda *_: [5, repeat(5)], "microbatch 1: more than 100000 lengths"),
    "leaves the program": (lambda *_: sys.exit(3), "raised SystemExit(3)"),
    "nothing": (lambda *_: None, "returned None, not one load"),
    "a word": (lambda *_: "many", "returned 'many', not one load"),
    "words": (lambda *_: ["many", "few"], "'many' for microbatch 0"),
}


@pytest.mark.parametrize(("function", "why"), BAD.values(), ids=BAD)
def test_a_bad_answer_ends_asking(function: LoadFunction, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_loads, "LIMIT_S", 60.0)  # other work may hold this host up
    batches, said = asked(function, 3)
    assert [one.loads for one in batches] == [None] * 3
    (line,) = said
    assert [part for part in (why, "iteration 0", "rank 3") if part not in line] == []
    assert "\n" not in line


def test_a_function_that_is_slow_again_and_again_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_loads, "LIMIT_S", 0.0)
    batches, said = asked(lambda *_: [1, 2], 5)
    assert [one.loads is None for one in batches] == [False, False, False, True, True]
    (line,) = said
    assert "longer" in line
    assert "iteration 2" in line


def test_a_function_on_some_ranks_alone_is_asked_on_none() -> None:
    channel, log = MagicMock(size=3), MagicMock()
    channel.gather_results.return_value = [True, False, True]
    assert given_by_all(channel, "math.hypot", log) is None
    assert "rank 1" in log.event.call_args.args[1]
    channel.gather_results.return_value = [True] * 3
    assert given_by_all(channel, "math.hypot", log) is math.hypot


@pytest.mark.parametrize("name", ["math.no_such", "no_such_module.loads", "loads", "math.pi"])
def test_a_name_that_leads_nowhere_is_refused_with_its_key_where_all_hear_of_it(name: str) -> None:
    """A rank that raised before the exchange would keep the others waiting."""
    with pytest.raises(ConfigError, match=f"perseus.straggler.loads .*'{name}'"):
        load_function(name)
    channel = MagicMock(size=2)
    channel.gather_results.side_effect = lambda act: [act(), True]
    with pytest.raises(ConfigError, match=r"perseus\.straggler\.loads"):
        given_by_all(channel, name, MagicMock())
    assert channel.gather_results.call_count == 1


def test_the_function_of_the_code_goes_before_the_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_function(None) is None
    assert load_function("math.hypot") is math.hypot
    try:
        perseus_ds.set_load(divmod)
        assert load_function("math.hypot") is divmod
        with pytest.raises(ConfigError, match=r"set_load .*5"):
            perseus_ds.set_load(5)
    finally:
        perseus_ds.set_load(None)
