"""The block, and the files and words that hold it: what is accepted, and what is refused in one line."""

import base64
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import hjson
import jsonschema
import pytest

from perseus_ds.config import FLAGS, PerseusConfig, is_enabled, load, parse, read_block
from perseus_ds.config.load import REMOVED_KEYS, text_digest
from perseus_ds.device.simulated.settings import simulated_settings
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
    ({"run_dir": " "}, "run_dir", "folder"),
    ({"run_dir": "a\tb"}, "run_dir", "folder"),
    ({"run_dir": "${oc.env:PERSEUS_TEST_NOT_SET}"}, "run_dir", "PERSEUS_TEST_NOT_SET"),
]


def refusal(read: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read(*arguments)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return str(caught.value)


@pytest.mark.parametrize(("block", "key", "word"), REFUSED, ids=[str(block) for block, *_ in REFUSED])
def test_a_bad_block_is_one_line_that_names_the_key(block: dict[str, object], key: str, word: str) -> None:
    line = refusal(parse, block, {})
    assert line.startswith(f"perseus.{key} is ")
    assert word in line


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


@pytest.mark.parametrize(
    ("objective", "allowed"),
    [
        ({"policy": "max_slowdown", "max_slowdown_pct": 5.0}, True),
        ({"policy": "max_slowdown", "max_slowdown_pct": 5.0, "changes_per_s": 2.0}, True),
        ({"policy": "max_slowdown", "max_slowdown_pct": 5.0, "changes_per_s": 0.0}, False),
        ({"policy": "no_slowdown"}, False),
        ({"policy": "min_energy"}, False),
    ],
)
def test_clocks_change_within_a_captured_iteration_only_where_it_may_last_longer(
    objective: dict[str, object], *, allowed: bool
) -> None:
    assert parse({"objective": objective}, {}).objective.allows_dates is allowed


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
    line = refusal(parse, block_of(key.split("."), text), {})
    assert line.startswith(f"perseus.{key}")
    assert form in line


def test_what_a_shell_would_expand_is_refused_with_the_form_that_works() -> None:
    forms = {"$SCRATCH/x": "${oc.env:SCRATCH}", "a/$USER": "${oc.env:USER}", "~nobody-here/x": "~nobody-here"}
    for run_dir, form in forms.items():
        assert form in refusal(parse, {"run_dir": run_dir}, {})


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
    for value in (NUMBERS + NO_NUMBERS if re.search("float|int", str(wanted)) else (1.5, [], {}, math.nan))
]
CASES = [
    pytest.param(path, value, id=f"{'.'.join(path)}={value}", marks=[pytest.mark.thorough] * bool(number % 4))
    for number, (path, value) in enumerate(MALFORMED)
]


@pytest.mark.parametrize(("path", "value"), CASES)
def test_a_malformed_block_is_one_line_with_key_and_range(path: tuple[str, ...], value: object) -> None:
    line = refusal(parse, {"enabled": True, **block_of(path, value)}, {})
    assert line.startswith(f"perseus.{'.'.join(path)} is ")
    assert "(expected " in line
    assert len(line) < 250


def test_a_number_beyond_all_numbers_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"perseus": {"audit": {"iterations": 1e999}}}')
    for read in (partial(load, file, {}), partial(read_block, file)):
        with pytest.raises(ConfigError, match=r"ds\.json.*number"):
            read()


# Configurations of DeepSpeed jobs, a file or base64.

ENCODED = '{"perseus": {"enabled": true, "run_dir": "runs/\u00fc>?~\u00ff"}} // and a comment'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ds.json"


def test_a_block_is_read_over_comments_as_deepspeed_does_where_it_asks_for_us(file: Path) -> None:
    file.write_text('{\n // of ours\n "perseus": {"enabled": true, "mode": "run"} # and more\n}')
    config = load(file, {"PERSEUS_RUN_DIR": "there"})
    assert (config.mode, config.run_dir) == ("run", "there")
    for text in ("{}", '{"train_batch_size": 8}', '{"perseus": {"enabled": false, "x": 1}}'):
        file.write_text(text)
        assert load(file, {}) is None


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigError, match=f"{path} .*ordinary"):
            load(path, {})


def test_base64_is_read_in_both_alphabets_and_a_file_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert load(encode(ENCODED.encode()).decode(), {}).run_dir == "runs/\u00fc>?~\u00ff"
    monkeypatch.chdir(tmp_path)
    name = base64.b64encode(b'{"perseus": {"enabled": true, "run_dir": "in_the_name"}}').decode()[:60]
    Path(name).write_text('{"perseus": {"enabled": true, "run_dir": "in_the_file"}}')
    assert load(name, {}).run_dir == "in_the_file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"no JSON {", "is not"),
        (b'{"perseus":{"enabled":true,"modus":1}}', "perseus.modus"),
        (b" " * 20_000_000, "longer than"),
    ],
    ids=["no JSON", "a bad key", "too much"],
)
def test_base64_of_something_else_is_refused_in_one_line(text: bytes, message: str) -> None:
    line = refusal(load, base64.b64encode(text).decode(), {})
    assert line.startswith("--deepspeed_config in base64")
    assert message in line


def test_what_is_neither_file_nor_base64_is_a_missing_file() -> None:
    """A character that no alphabet has is not passed over: it may be a name with a slip in it."""
    for word in ("ds.json", "no such", "x" * 5000, "_-_-"):
        refusal(load, word, {})
    word = base64.b64encode(b'{"train_batch_size": 4}').decode()
    with pytest.raises(ConfigError, match="No such"):
        load(f"{word[:8]}.{word[8:]}", {})


# A block in a file of its own: JSON or YAML, and one line for whatever it is not.


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("perseus.json", '{"run_dir": "x", "audit": {"iterations": 3}}'),
        ("perseus.json", '{"run_dir": "x", /* as DeepSpeed reads it */ "audit": {"iterations": 3}}'),
        ("perseus.yaml", "run_dir: x\naudit: {iterations: 3}\n"),
        ("perseus.yml", "run_dir: x\naudit:\n  iterations: 3\n"),
    ],
)
def test_json_and_yaml_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_block(tmp_path / name) == {"run_dir": "x", "audit": {"iterations": 3}}


BAD_FILES = [  # ds.json: a DeepSpeed configuration, every other name: a block
    ("ds.json", b'{"perseus": {"enabled": true', "cut short"),
    *(("ds.json", text, "is not a DeepSpeed configuration") for text in (b"[1]", b"hello")),
    ("ds.json", b'{"perseus": {"mode": "run", "mode": "off"}}', "'mode' stands there twice"),
    ("ds.json", b'{"perseus": {"enabled": true, "mod": 1}}', "did you mean mode"),
    ("ds.json", b'{"perseus": 3}', ": perseus is 3 (expected a block like"),
    ("ds.json", b"\xff\xfe\x00", "utf-8"),
    ("ds.json", b"[" * 100_000, "is nested too deeply"),
    ("ds.json", b" " * (1 << 20), "has 1048576 bytes, 262144 are allowed"),
    ("ds.json", b'{"perseus": {"enabled": true, "run_dir": "${run_dir}"}}', "perseus"),
    ("torn.json", b'{"run_dir": "x', "JSON"),
    ("torn.yaml", b"run_dir: [x", "JSON"),
    ("binary.json", b"\x80\xff", "JSON"),
    *(
        (name, text, "is empty")
        for name, text in (("a.json", b""), ("b.json", b"// later"), ("c.yaml", b"# x\n"))
    ),
    ("twice.json", b'{"audit": {"iterations": 3, "iterations": 4}}', "'iterations' stands"),
    ("twice.yaml", b"mode: off\nmode: run\n", "duplicate key mode"),
    ("ranks.yaml", b'simulated: {ranks: {3: {}, "3": {}}}\n', "Conflicting"),
    *((name, text, "block") for name, text in (("list.json", b"[1]"), ("list.yaml", b"- 1\n"))),
    ("huge.json", b" " * (1 << 21), "bytes"),
]


@pytest.mark.parametrize(("name", "content", "why"), BAD_FILES, ids=[one[2] for one in BAD_FILES])
def test_a_bad_file_is_refused_in_one_line_with_its_name(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    line = refusal(partial(load, file, {}) if name == "ds.json" else partial(read_block, file))
    assert str(file) in line
    assert why in line


def test_two_files_have_one_mark_if_they_say_the_same(tmp_path: Path) -> None:
    for name, text in (("one", "{}"), ("same", "{}"), ("other", "{ }")):
        (tmp_path / name).write_text(text)
    marks = [text_digest(tmp_path / name) for name in ("one", "same", "other")]
    assert marks[0] == marks[1] != marks[2]
    assert text_digest(tmp_path / "nowhere") is None
    assert text_digest(tmp_path) is None


# Every example in configs/: read by us, by DeepSpeed's own reader and by the block's JSON Schema.

ROOT = Path(__file__).parents[3]
WHOLE = sorted((ROOT / "configs").glob("*.json"))
BLOCKS = sorted((ROOT / "configs" / "blocks").glob("*.json"))
SCHEMA = json.loads((ROOT / "docs/reference/schemas/block.schema.json").read_text())


@pytest.mark.parametrize("file", [*WHOLE, *BLOCKS], ids=lambda file: file.name)
def test_every_example_passes_with_its_comments(file: Path) -> None:
    config = load(file, {}) if file in WHOLE else parse({"enabled": True, **read_block(file)}, {})
    assert config.enabled
    simulated_settings(config.simulated)
    if file in WHOLE:
        assert config.run_dir != "perseus_runs/default"
        assert (config.device == "simulated") == (file.name in {"demo.json", "demo-zero.json"})
    content = json.loads(json.dumps(hjson.loads(file.read_text())))
    jsonschema.validate(content.get("perseus", content), SCHEMA)


@pytest.mark.parametrize("file", WHOLE, ids=lambda file: file.name)
def test_batch_sizes_agree(file: Path) -> None:
    deepspeed = hjson.loads(file.read_text())
    assert deepspeed["train_micro_batch_size_per_gpu"] >= 1
    replicas = deepspeed.get("train_batch_size", 0) / (
        deepspeed["train_micro_batch_size_per_gpu"] * deepspeed["gradient_accumulation_steps"]
    )
    assert replicas == int(replicas)
