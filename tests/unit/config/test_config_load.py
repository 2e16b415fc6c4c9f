from pathlib import Path

import pytest

from perseus_ds.config import load
from perseus_ds.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ds.json"


def test_reads_the_block_over_comments_as_deepspeed_does(file: Path) -> None:
    file.write_text('{\n // of ours\n "perseus": {"enabled": true, "mode": "run"} # and more\n}')
    config = load(file, {"PERSEUS_RUN_DIR": "there"})
    assert config is not None
    assert (config.mode, config.run_dir) == ("run", "there")


@pytest.mark.parametrize("text", ["{}", '{"train_batch_size": 8}', '{"perseus": {"enabled": false, "x": 1}}'])
def test_a_file_that_does_not_ask_for_us_is_none(file: Path, text: str) -> None:
    file.write_text(text)
    assert load(file, {}) is None


REFUSED = {
    "cut short": ('{"perseus": {"enabled": true', "cut short"),
    "a list": ("[1]", "is not a DeepSpeed configuration (expected a JSON object)"),
    "a word": ("hello", "is not a DeepSpeed configuration (expected a JSON object)"),
    "a key twice": ('{"perseus": {"mode": "run", "mode": "off"}}', "'mode' stands there twice"),
    "a bad key": (
        '{"perseus": {"enabled": true, "mod": 1}}',
        ": perseus.mod is not a known key (did you mean",
    ),
    "a block that is none": ('{"perseus": 3}', ": perseus is 3 (expected a block like"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_a_bad_file_is_refused_in_one_line_with_its_name(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-16"):
        load(file, {})


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere"):
        load(tmp_path / "nowhere.json", {})
