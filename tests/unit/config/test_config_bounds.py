"""Configurations of others: one line each, whatever they are."""

import os
from pathlib import Path

import pytest

from perseus_ds.config import load
from perseus_ds.errors import ConfigError

REFUSED = {
    "deep lists": (b"[" * 100_000, "is nested too deeply"),
    "deep blocks": (b'{"perseus":' * 20_000 + b"1" + b"}" * 20_000, "is nested too deeply"),
    "a megabyte": (b" " * (1 << 20), "has 1048576 bytes, 262144 are allowed"),
    "no text": (b"\xff\xfe\x00", "UTF-16"),
    "a list": (b"[1]", "is not a DeepSpeed configuration"),
    "a key twice": (b'{"perseus": {}, "perseus": {}}', "'perseus' stands there twice"),
    "a reference to itself": (b'{"perseus": {"enabled": true, "run_dir": "${run_dir}"}}', "perseus"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_file_is_one_line_with_its_name(tmp_path: Path, text: bytes, why: str) -> None:
    path = tmp_path / "ds.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    line = str(caught.value)
    assert line.startswith(str(path))
    assert why in line
    assert "\n" not in line
    assert len(line) < 500


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigError, match=f"{path} .*ordinary"):
            load(path, {})
