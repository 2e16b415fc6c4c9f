"""A block in a file of its own: JSON or YAML, and one line for whatever it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseus_ds.config import read_block
from perseus_ds.config.load import text_digest
from perseus_ds.errors import ConfigError


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
def test_anything_else_is_one_line_that_names_the_file(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
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
