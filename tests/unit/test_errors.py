import inspect
import pickle
import re

import pytest

from perseus_ds import errors
from perseus_ds.errors import PerseusError

KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn: list[tuple[int, str]] = [
        (len(indent) // 2, name)
        for indent, name in re.findall(r"^( +)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    ]
    root_depth = drawn[0][0]
    stack: list[str] = []
    parents = {}
    for depth, name in drawn:
        del stack[depth - root_depth :]
        parents[name] = stack[-1] if stack else "Exception"
        stack.append(name)
    assert parents == {kind.__name__: kind.__base__.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_message_and_hint_survive_a_process_border(kind: type[PerseusError]) -> None:
    for error in (kind("what happened", hint="what to do"), kind("what happened")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.message, again.hint) == (kind, error.message, error.hint)


def test_prints_the_message_and_then_the_hint() -> None:
    assert str(PerseusError("a is 3", hint="expected 4")) == "a is 3 (expected 4)"
    assert str(PerseusError("a is 3")) == "a is 3"
