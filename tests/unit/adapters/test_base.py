"""Hooks in a framework's classes and methods never end the host's own calls."""

import subprocess
import sys
from functools import partial
from unittest.mock import MagicMock

import pytest
from adapter_contract import CallNotes

from perseus_ds.adapters.base import HookedAdapter, Release, on_construction, on_first_call
from perseus_ds.errors import ConfigError
from perseus_ds.runtime.adapter import Batch


class Engine:
    def step(self, number: int) -> int:
        return number


def test_an_engine_is_built_and_called_whatever_fails_in_us(capsys: pytest.CaptureFixture[str]) -> None:
    fails = MagicMock(side_effect=ZeroDivisionError("a bug of ours"))
    kind = type("Built", (Engine,), {"__init__": lambda self: None})
    on_construction(kind, fails)
    assert kind().step(3) == 3
    capsys.readouterr()
    on_first_call(engine := Engine(), "step", ready=fails, serve=fails)
    assert (engine.step(3), engine.step(4)) == (3, 4)
    assert "step" not in vars(engine)
    assert capsys.readouterr().err.count("a bug") == 1


def test_who_asks_for_our_errors_has_them_raised() -> None:
    engine = Engine()
    on_first_call(engine, "step", ready=lambda _: True, serve=MagicMock(side_effect=ConfigError("asked for")))
    with pytest.raises(ConfigError):
        engine.step(3)


def test_hooks_restore_what_they_replaced_in_the_order_of_the_stack() -> None:
    class Stepping(HookedAdapter):
        def _hook(self) -> None:
            for name in ("step", "step", "other"):
                self._replace(engine, name, lambda *_: 0)

    engine, hooks = Engine(), Stepping()
    vars(engine)["step"] = own = engine.step  # somebody else's, from before
    for _ in range(2):
        hooks.install(CallNotes())
        assert engine.step(3) == 0
        hooks.remove()
        hooks.remove()
        assert vars(engine) == {"step": own}


def test_what_others_replaced_meanwhile_is_theirs() -> None:
    """A user's wrapper around ours stays when ours are removed, and when an engine begins to be served."""

    class Stepping(HookedAdapter):
        def _hook(self) -> None:
            step = engine.step
            run = partial(self._run, trains=lambda: True, batch=partial(Batch, 1))
            self._replace(engine, "step", lambda number: run(partial(step, number)))

    engine, notes, hooks = Engine(), CallNotes(), Stepping()
    hooks.install(notes)
    vars(engine)["step"] = theirs = partial(engine.step)
    assert engine.step(3) == 3
    hooks.remove()
    assert engine.step is theirs
    assert engine.step(4) == 4
    assert notes.calls == ["begins 1", "ends"]
    served: list[int] = []
    on_first_call(engine, "step", ready=lambda number: number > 4, serve=served.append)
    assert [engine.step(number) for number in (4, 5, 6)] == [4, 5, 6]
    assert served == [5]
    assert engine.step is theirs


def test_adapters_import_nothing_of_their_frameworks() -> None:
    """A process that never uses a framework does not pay for it."""
    program = """
import sys, torch
before = set(sys.modules)
from perseus_ds.adapters import deepspeed, deepspeed_zero, megatron, torch_pipelining
theirs = ("deepspeed", "megatron", "torch.distributed.pipelining")
print("IMPORTED", sorted(name for name in set(sys.modules) - before if name.startswith(theirs)))
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "IMPORTED []"


@pytest.mark.parametrize(("release", "line"), [("1.2", ""), ("1.2+cu128", ""), ("1.3", "plodder 1.3")])
def test_a_release_that_nobody_tried_is_a_line(release: str, line: str) -> None:
    told = Release("plodder", release, ("1.1", "1.2")).untested
    assert told.startswith(line)
    assert bool(told) == bool(line)
