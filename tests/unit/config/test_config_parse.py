"""The block: what is accepted, and what is refused in one line with its key."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from perseus_ds.config import FLAGS, PerseusConfig, is_enabled, load, parse, read_block
from perseus_ds.config.load import REMOVED_KEYS
from perseus_ds.errors import ConfigError

REFUSED: list[tuple[dict[str, object], str, str]] = [
    ({"mod": "run"}, "mod", "mode"),
    ({"profile": {"min_windows": 1}}, "profile.min_windows", "min_window_s"),
    ({"zzz": 1}, "zzz", "known: enabled"),
    ({"enabled": "yes"}, "enabled", "boolean"),
    ({"mode": "runn"}, "mode", "'automatic'"),
    ({"mode": True}, "mode", "YAML"),
    ({"on_error": "ignore"}, "on_error", "'raise'"),
    ({"profile": 5}, "profile", "object"),
    ({"simulated": True}, "simulated", "object"),
    ({"profile": {"max_clocks": 3.5}}, "profile.max_clocks", "integer"),
    ({"objective": {"reserve_pct": "much"}}, "objective.reserve_pct", "number or 'automatic'"),
    ({"objective": {"deadline_s": 3}}, "objective.deadline_s", "policy"),
    ({"run_dir": "${oc.env:PERSEUS_TEST_NOT_SET}"}, "run_dir", "PERSEUS_TEST_NOT_SET"),
]


@pytest.mark.parametrize(("block", "key", "word"), REFUSED, ids=[str(block) for block, *_ in REFUSED])
def test_a_bad_block_is_one_line_that_names_the_key(block: dict[str, object], key: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(block, {})
    assert str(caught.value).startswith(f"perseus.{key} is ")
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flags_win_over_the_block_empty_ones_do_not_and_a_bad_one_is_named() -> None:
    assert parse({}, {}) == PerseusConfig()
    block = {"mode": "automatic", "device": "nvml", "run_dir": "a"}
    environment = {"PERSEUS_MODE": "profile", "PERSEUS_DEVICE": "null", "PERSEUS_RUN_DIR": ""}
    environment |= {"PERSEUS_TRACE_KERNELS": "2"}
    config = parse(block, environment)
    assert (config.mode, config.device, config.run_dir) == ("profile", "null", "a")
    assert config.trace_kernels == 2
    assert set(environment) == set(FLAGS)
    with pytest.raises(ConfigError, match=r"PERSEUS_MODE"):
        parse({}, {"PERSEUS_MODE": "prof"})


def test_values_may_hold_variables_and_paths_be_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_TEST_DIR", "there")
    assert parse({"run_dir": "${oc.env:PERSEUS_TEST_DIR}/run"}, {}).run_dir == "there/run"
    monkeypatch.setenv("HOME", "/home/ada")
    block = {"run_dir": "~/r", "objective": {"timelines": "~/t"}, "metrics": {"folder": "~/m"}}
    config = parse(block, {})
    paths = config.run_dir, config.objective.timelines, config.metrics.folder
    assert paths == ("/home/ada/r", "/home/ada/t", "/home/ada/m")
    assert parse({}, {"PERSEUS_RUN_DIR": "~/x"}).run_dir == "/home/ada/x"
    assert parse({"run_dir": "./~/x"}, {}).run_dir == "./~/x"
    assert parse({"run_dir": "cost$"}, {}).run_dir == "cost$"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        *((f"runs/${{SLURM_JOB_ID{more}}}", "${oc.env:SLURM_JOB_ID}") for more in ("", ":-0")),
        ("${device}", "${oc.env:device}"),
        *((braces, "${oc.env:NAME}") for braces in ("${}", "${")),
        ("${oc.env:HOME}/${USER}", "${oc.env:USER}"),
    ],
)
@pytest.mark.parametrize("key", ["run_dir", "objective.timelines", "simulated.gpu"])
def test_braces_of_another_kind_are_refused_with_the_form_that_works(text: str, form: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(block_of(key.split("."), text), {})
    assert caught.value.message.startswith(f"perseus.{key}")
    assert form in str(caught.value)


def test_what_a_shell_would_expand_is_refused_with_the_form_that_works() -> None:
    forms = {"$SCRATCH/x": "${oc.env:SCRATCH}", "a/$USER": "${oc.env:USER}", "~nobody-here/x": "~nobody-here"}
    for run_dir, form in forms.items():
        with pytest.raises(ConfigError) as caught:
            parse({"run_dir": run_dir}, {})
        assert form in str(caught.value)


@pytest.mark.parametrize("name", ["Perseus", "PERSEUS", "perseus_ds"])
def test_a_block_that_is_nearly_ours_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({name: {"enabled": True}}))
    with pytest.raises(ConfigError, match=name):
        load(tmp_path / "ds.json", {})


@pytest.mark.parametrize(
    ("config", "enabled"),
    [
        ({}, False),
        ({"perseus": None}, False),
        ({"perseus": {}}, False),
        ({"perseus": {"enabled": False, "nonsense": 1}}, False),
        ({"perseus": {"enabled": True}}, True),
        ({"perseus": {"enabled": "yes"}}, True),  # refused later, with the key
        ({"perseus": "on"}, True),
    ],
)
def test_only_a_block_that_asks_for_us_counts(config: dict[str, object], *, enabled: bool) -> None:
    assert is_enabled(config) is enabled


@pytest.mark.parametrize("word", ["automatic", "auto"])
def test_either_word_lets_us_choose_in_every_key_that_takes_it(word: str) -> None:
    objective = {"reserve_pct": word, "split": word, "waits": word}
    config = parse({"mode": word, "device": word, "objective": objective}, {})
    words = config.objective.reserve_pct, config.objective.split, config.objective.waits
    assert (config.mode, config.device, *words) == ("automatic",) * 5
    flags = {"PERSEUS_MODE": word, "PERSEUS_DEVICE": word}
    assert parse({"mode": "off", "device": "nvml"}, flags) == PerseusConfig()


@pytest.mark.parametrize("key", REMOVED_KEYS)
def test_a_removed_key_is_refused_with_what_to_do_instead(key: str) -> None:
    names, _, value = key.partition(": ")
    with pytest.raises(ConfigError) as refused:
        parse({"enabled": True} | block_of(names.split("."), value or 1), {})
    assert f"perseus.{key}" in refused.value.message
    assert refused.value.hint == REMOVED_KEYS[key]


# Every number of the block has a range: whatever lies outside is one line with the key and the range.

POLICY = {"max_slowdown_pct": "max_slowdown", "deadline_s": "deadline", "power_cap_w": "power_cap"}
NUMBERS: tuple[object, ...] = (-1e308, -1e-9, 1e308, math.inf, -math.inf, math.nan)
NO_NUMBERS: tuple[object, ...] = (True, "1", [], {}, [1])


def keys(kind: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every key of the block that is no block itself, with its type."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        wanted = hints[field.name]
        if isinstance(wanted, type) and is_dataclass(wanted):
            yield from keys(wanted, (*path, field.name))
        elif field.name != "simulated":
            yield (*path, field.name), wanted


def is_number(wanted: object) -> bool:
    return "float" in str(wanted) or "int" in str(wanted)


def block_of(path: Sequence[str], value: object) -> dict[str, Any]:
    block: dict[str, Any] = {path[-1]: value}
    if path[-1] in POLICY:
        block["policy"] = POLICY[path[-1]]
    for name in reversed(path[:-1]):
        block = {name: block}
    return block


MALFORMED = [
    (path, value)
    for path, wanted in keys(PerseusConfig)
    for value in (NUMBERS + NO_NUMBERS if is_number(wanted) else (1.5, [], {}, math.nan))
]
CASES = [
    pytest.param(path, value, id=f"{'.'.join(path)}={value}", marks=[pytest.mark.thorough] * bool(number % 4))
    for number, (path, value) in enumerate(MALFORMED)
]


@pytest.mark.parametrize(("path", "value"), CASES)
def test_a_malformed_block_is_one_line_with_key_and_range(path: tuple[str, ...], value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        parse({"enabled": True, **block_of(path, value)}, {})
    line = str(refused.value)
    assert line.startswith(f"perseus.{'.'.join(path)} is ")
    assert "(expected " in line
    assert "\n" not in line
    assert len(line) < 250


def test_a_number_beyond_all_numbers_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"perseus": {"audit": {"iterations": 1e999}}}')
    for read in (partial(load, file, {}), partial(read_block, file)):
        with pytest.raises(ConfigError, match=r"ds\.json.*number"):
            read()
