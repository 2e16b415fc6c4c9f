import inspect
import pickle

import pytest

from perseus_ds import errors
from perseus_ds.errors import PerseusError

KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_message_and_hint_survive_a_process_border(kind: type[PerseusError]) -> None:
    for error in (kind("what happened", hint="what to do"), kind("what happened")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.message, again.hint) == (kind, error.message, error.hint)


def test_prints_the_message_and_then_the_hint() -> None:
    assert str(PerseusError("3", hint="expected 4")) == "3 (expected 4)"
    assert str(PerseusError("3")) == "3"
