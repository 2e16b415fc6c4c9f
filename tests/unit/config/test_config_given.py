"""A configuration in base64, as gpt-neox writes it into the command line, is read as DeepSpeed reads it."""

import base64
from pathlib import Path

import pytest

from perseus_ds.config import load
from perseus_ds.config.load import read_source
from perseus_ds.errors import ConfigError

BLOCK = '{"perseus": {"enabled": true, "run_dir": "runs/\u00fc>?~\u00ff"}} // and a comment'


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_read_in_both_alphabets(encode: type(base64.b64encode)) -> None:
    config = load(encode(BLOCK.encode()).decode(), {})
    assert config is not None
    assert config.run_dir == "runs/\u00fc>?~\u00ff"


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = base64.b64encode(b'{"perseus": {"enabled": true, "run_dir": "in_the_name"}}').decode()[:60]
    Path(name).write_text('{"perseus": {"enabled": true, "run_dir": "in_the_file"}}')
    config = load(name, {})
    assert config is not None
    assert config.run_dir == "in_the_file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON {", "is not"),
        ("[1, 2]", "object"),
        ('{"perseus":{"enabled":true', "JSON"),
        ('{"perseus":{"enabled":true,"modus":1}}', "perseus.modus"),
    ],
)
def test_base64_of_something_else_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(base64.b64encode(text.encode()).decode(), {})
    assert str(refused.value).startswith("--deepspeed_config in base64")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_too_much_of_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than"):
        load(base64.b64encode(b" " * 20_000_000).decode(), {})


@pytest.mark.parametrize("word", ["ds.json", "no such", "x" * 5000, "_-_-"])
def test_what_is_neither_file_nor_base64_is_a_missing_file(word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(word, {})
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_what_only_looks_like_base64_is_none() -> None:
    """A character that no alphabet has is not passed over: it may be a name with a slip in it."""
    word = base64.b64encode(b'{"train_batch_size": 4}').decode()
    with pytest.raises(ConfigError, match="No such"):
        read_source(f"{word[:8]}.{word[8:]}")
