"""Configurations of DeepSpeed jobs, a file or base64: the block is read, or refused in one line."""

import base64
import json
import os
from pathlib import Path

import hjson
import pytest

from perseus_ds.config import load, parse, read_block, read_source
from perseus_ds.config.load import text_digest
from perseus_ds.device.simulated.settings import simulated_settings
from perseus_ds.errors import ConfigError

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


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "cut short": (b'{"perseus": {"enabled": true', "cut short"),
    "a list": (b"[1]", "is not a DeepSpeed configuration"),
    "a word": (b"hello", "is not a DeepSpeed configuration"),
    "a key twice": (b'{"perseus": {"mode": "run", "mode": "off"}}', "'mode' stands there twice"),
    "a bad key": (b'{"perseus": {"enabled": true, "mod": 1}}', "did you mean mode"),
    "a block that is none": (b'{"perseus": 3}', ": perseus is 3 (expected a block like"),
    "no text": (b"\xff\xfe\x00", "utf-8"),
    "deep lists": (b"[" * 100_000, "is nested too deeply"),
    "a megabyte": (b" " * (1 << 20), "has 1048576 bytes, 262144 are allowed"),
    "a reference to itself": (b'{"perseus": {"enabled": true, "run_dir": "${run_dir}"}}', "perseus"),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_in_one_line_with_its_name(file: Path, text: bytes, message: str) -> None:
    file.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    line = str(caught.value)
    assert line.startswith(str(file))
    assert message in line
    assert "\n" not in line
    assert len(line) < 500


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
    with pytest.raises(ConfigError) as refused:
        load(base64.b64encode(text).decode(), {})
    assert str(refused.value).startswith("--deepspeed_config in base64")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_neither_file_nor_base64_is_a_missing_file() -> None:
    """A character that no alphabet has is not passed over: it may be a name with a slip in it."""
    for word in ("ds.json", "no such", "x" * 5000, "_-_-"):
        with pytest.raises(ConfigError) as refused:
            load(word, {})
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 400
    word = base64.b64encode(b'{"train_batch_size": 4}').decode()
    with pytest.raises(ConfigError, match="No such"):
        read_source(f"{word[:8]}.{word[8:]}")


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


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("torn.json", b'{"run_dir": "x', "JSON"),
        ("empty.json", b"", "is empty"),
        ("comment.json", b"// later", "is empty"),
        ("comment.yaml", b"# later\n", "is empty"),
        ("twice.json", b'{"audit": {"iterations": 3, "iterations": 4}}', "'iterations' stands"),
        ("twice.yaml", b"mode: off\nmode: run\n", "duplicate key mode"),
        ("ranks.yaml", b'simulated: {ranks: {3: {}, "3": {}}}\n', "Conflicting"),
        ("torn.yaml", b"run_dir: [x", "JSON"),
        ("list.json", b"[1]", "block"),
        ("list.yaml", b"- 1\n", "block"),
        ("binary.json", b"\x80\xff", "JSON"),
        ("huge.json", b" " * (1 << 21), "bytes"),
    ],
)
def test_anything_else_is_one_line_with_its_file(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_block(tmp_path / name)
    assert str(tmp_path / name) in refused.value.message
    assert why in refused.value.message
    assert "\n" not in str(refused.value)


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
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: scripts/setup")
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
