import json
from collections.abc import Callable
from pathlib import Path

import pytest

from perseus_ds.config import FLAGS, PerseusConfig, is_enabled, load, parse
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
    ({"run_dir": 3}, "run_dir", "string"),
    ({"profile": 5}, "profile", "object"),
    ({"simulated": True}, "simulated", "object"),
    ({"profile": {"min_window_s": "5"}}, "profile.min_window_s", "number"),
    ({"profile": {"min_window_s": True}}, "profile.min_window_s", "number"),
    ({"profile": {"max_clocks": 3.5}}, "profile.max_clocks", "integer"),
    ({"objective": {"reserve_pct": "much"}}, "objective.reserve_pct", "number or 'automatic'"),
    ({"objective": {"deadline_s": 3}}, "objective.deadline_s", "policy"),
    ({"run_dir": "${oc.env:PERSEUS_TEST_NOT_SET}"}, "run_dir", "PERSEUS_TEST_NOT_SET"),
]


@pytest.mark.parametrize(("block", "key", "word"), REFUSED, ids=[str(block) for block, *_ in REFUSED])
def test_bad_block_is_refused_in_one_line_that_names_the_key(
    block: dict[str, object], key: str, word: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(block, {})
    assert str(caught.value).startswith(f"perseus.{key} is ")
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_block_is_every_default() -> None:
    assert parse({}, {}) == PerseusConfig()


def test_flags_win_over_the_block_and_empty_ones_do_not() -> None:
    block = {"mode": "automatic", "device": "nvml", "run_dir": "a"}
    environment = {"PERSEUS_MODE": "profile", "PERSEUS_DEVICE": "null", "PERSEUS_RUN_DIR": ""}
    environment |= {"PERSEUS_TRACE_KERNELS": "2"}
    config = parse(block, environment)
    assert (config.mode, config.device, config.run_dir) == ("profile", "null", "a")
    assert config.trace_kernels == 2
    assert set(environment) == set(FLAGS)


def test_a_bad_flag_is_named() -> None:
    with pytest.raises(ConfigError, match=r"PERSEUS_MODE"):
        parse({}, {"PERSEUS_MODE": "prof"})


def test_environment_variables_inside_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_TEST_DIR", "there")
    assert parse({"run_dir": "${oc.env:PERSEUS_TEST_DIR}/run"}, {}).run_dir == "there/run"


@pytest.mark.parametrize("flag", [True, False])
def test_a_run_directory_may_be_in_the_home_directory(monkeypatch: pytest.MonkeyPatch, *, flag: bool) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    block, flags = ({}, {"PERSEUS_RUN_DIR": "~/x"}) if flag else ({"run_dir": "~/x"}, {})
    assert parse(block, flags).run_dir == "/home/ada/x"
    assert parse({"run_dir": "./~/x"}, {}).run_dir == "./~/x"
    assert parse({"run_dir": "cost$"}, {}).run_dir == "cost$"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("runs/${SLURM_JOB_ID}", "${oc.env:SLURM_JOB_ID}"),
        ("runs/${SLURM_JOB_ID:-0}", "${oc.env:SLURM_JOB_ID}"),
        ("${device}", "${oc.env:device}"),
        ("${}", "${oc.env:NAME}"),
        ("${", "${oc.env:NAME}"),
        ("${oc.env:HOME}/${USER}", "${oc.env:USER}"),
    ],
)
@pytest.mark.parametrize(
    ("key", "block"),
    [
        ("perseus.run_dir", lambda text: {"run_dir": text}),
        ("perseus.objective.timelines", lambda text: {"objective": {"timelines": text}}),
        ("perseus.simulated.gpu", lambda text: {"simulated": {"gpu": text}}),
    ],
)
def test_braces_of_another_kind_are_refused_with_the_form_that_works(
    text: str, form: str, key: str, block: Callable[[str], dict[str, object]]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(block(text), {})
    assert caught.value.message.startswith(key)
    assert form in str(caught.value)


def test_every_path_may_be_in_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    config = parse({"objective": {"timelines": "~/t"}, "metrics": {"folder": "~/m"}}, {})
    assert (config.objective.timelines, config.metrics.folder) == ("/home/ada/t", "/home/ada/m")


@pytest.mark.parametrize(
    ("run_dir", "named"),
    [
        ("$SCRATCH/x", "${oc.env:SCRATCH}"),
        ("a/$USER", "${oc.env:USER}"),
        ("~nobody-here/x", "~nobody-here"),
    ],
)
def test_what_a_shell_would_expand_is_refused_with_the_form_that_works(run_dir: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"run_dir": run_dir}, {})
    assert named in str(caught.value)


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
    block: object = value or 1
    for name in reversed(names.split(".")):
        block = {name: block}
    assert isinstance(block, dict)
    with pytest.raises(ConfigError) as refused:
        parse({"enabled": True} | block, {})
    assert f"perseus.{key}" in refused.value.message
    assert refused.value.hint == REMOVED_KEYS[key]
