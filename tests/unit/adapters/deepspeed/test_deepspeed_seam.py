"""What we rely on in DeepSpeed is checked by name, and a refusal says what is missing and what was tested."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perseus_ds.adapters.deepspeed import (
    KINDS,
    LATER,
    REQUIRED_NAMES,
    check,
    crashes_with_timers,
)
from perseus_ds.adapters.deepspeed_settings import TESTED_DEEPSPEED, raw_config
from perseus_ds.errors import EngineError

COMMANDS = {type(name, (), {}): print for name in KINDS}


def engine(**changes: object) -> SimpleNamespace:
    """Everything that we need, under its name; a change to None takes it away."""
    content: dict[str, object] = {required.name: object() for required in REQUIRED_NAMES} | {
        "_INSTRUCTION_MAP": COMMANDS
    }
    content |= changes
    return SimpleNamespace(**{name: value for name, value in content.items() if value is not None})


def test_an_engine_with_everything_is_taken() -> None:
    found = engine()
    assert check(found) is found


@pytest.mark.parametrize("required", REQUIRED_NAMES, ids=lambda required: required.name)
def test_what_is_missing_is_named_with_its_use(required: object) -> None:
    name, use = required.name, required.use  # type: ignore[attr-defined]
    with pytest.raises(EngineError) as refused:
        check(engine(**{name: None}))
    assert f"PipelineEngine.{name}" in refused.value.message
    assert use in refused.value.message
    assert refused.value.message.startswith("DeepSpeed ")
    assert all(release in str(refused.value) for release in TESTED_DEEPSPEED)


def test_a_missing_instruction_is_named() -> None:
    fewer = {kind: handler for kind, handler in COMMANDS.items() if kind.__name__ != "SendGrad"}
    with pytest.raises(EngineError, match="SendGrad"):
        check(engine(_INSTRUCTION_MAP=fewer))


def test_more_instructions_than_ours_are_no_obstacle_nor_are_the_later_ones_missed() -> None:
    fewer = {kind: handler for kind, handler in COMMANDS.items() if kind.__name__ not in LATER}
    check(engine(_INSTRUCTION_MAP=fewer | {type("ReferenceForward", (), {}): print}))


def test_the_configuration_is_what_the_user_wrote() -> None:
    content = {"perseus": {"enabled": True}}
    assert raw_config(SimpleNamespace(_config=SimpleNamespace(_param_dict=content))) == content
    assert raw_config(object()) == {}
    assert raw_config(SimpleNamespace(_config=SimpleNamespace(_param_dict=None))) == {}


@pytest.mark.parametrize(
    ("release", "crashes"),
    [
        ("0.18.2", False),
        ("0.18.3", True),
        ("0.19.8", True),
        ("0.19.8+cu128", True),
        ("0.19.9", False),
        ("0.20.0", False),
        ("0.9.5", False),
    ],
)
def test_releases_that_crash_with_their_own_timers(release: str, crashes: bool) -> None:  # noqa: FBT001
    assert crashes_with_timers(release) is crashes
