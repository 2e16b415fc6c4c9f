"""The reader of files that others may have written: each refusal, and what each would cost without it."""

import errno
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from perseus_ds.errors import PerseusError
from perseus_ds.files import check_folder, parse_json, read_bounded, read_json, write_atomically

MINE = frozenset({os.geteuid()})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("{}")
    return path


def test_a_file_is_read_whole_and_a_link_followed_only_where_anybody_is_believed(file: Path) -> None:
    assert read_bounded(file, most_bytes=2, writers=MINE) == b"{}"
    assert read_json(file, most_bytes=2) == {}
    link = file.with_name("link")
    link.symlink_to(file)
    assert read_bounded(link, most_bytes=9) == b"{}"
    with pytest.raises(OSError, match="symbolic link"):
        read_bounded(link, most_bytes=9, writers=MINE)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero"), Path("/dev/tty")):
        with pytest.raises((PerseusError, OSError)):
            read_bounded(path, most_bytes=9)


def test_a_file_that_is_too_large_is_refused_and_not_read(file: Path) -> None:
    os.truncate(file, 1 << 40)
    tracemalloc.start()
    with pytest.raises(PerseusError, match=r"1099511627776 .*9"):
        read_bounded(file, most_bytes=9)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    with pytest.raises(PerseusError, match="9 are"):
        read_bounded(Path("/proc/self/status"), most_bytes=9)  # it says that it is empty, and is not


def test_who_could_have_written_it_is_asked(file: Path) -> None:
    file.chmod(0o666)
    with pytest.raises(PerseusError, match="everyone"):
        read_bounded(file, most_bytes=9, writers=MINE)
    file.chmod(0o644)
    with pytest.raises(PerseusError, match=f"user {os.geteuid()}"):
        read_bounded(file, most_bytes=9, writers=frozenset({12345}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to a group that it is not in")
def test_a_group_that_may_write_is_believed_only_where_it_is_private(file: Path) -> None:
    file.chmod(0o664)
    assert read_bounded(file, most_bytes=9, writers=MINE) == b"{}"
    os.chown(file, -1, 54321)
    with pytest.raises(PerseusError, match="group 54321"):
        read_bounded(file, most_bytes=9, writers=MINE)
    os.chown(file, 54321, 54321)  # a group of its user's own, though nobody has named either
    assert read_bounded(file, most_bytes=9, writers=frozenset({54321})) == b"{}"


def test_a_folder_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path, MINE)
    tmp_path.chmod(0o777)
    with pytest.raises(PerseusError, match="everyone"):
        check_folder(tmp_path, MINE)
    with pytest.raises(PerseusError, match="folder"):
        check_folder(Path("/dev/null"), MINE)


def test_what_is_written_is_whole_and_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_atomically(tmp_path / "new", "text", sync=True)
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


REFUSED = {
    "nothing": (b"", "is not JSON or is cut short"),
    "cut short": (b'{"a": 1', "is not JSON or is cut short"),
    "bytes": (b"\xff\xfe\x00", "is not text: byte 0 is no UTF-8"),
    "a byte in a text": (b'{"a": "\xc3\x28"}', "is not text"),
    "UTF-16": ("{}".encode("utf-16"), "is not text"),
    "deep lists": (b"[" * 100_000, "is nested too deeply"),
    "deep objects": (b'{"a":' * 100_000 + b"1", "is nested too deeply"),
    "NaN": (b'{"a": NaN}', "has NaN where a number should be"),
    "minus infinity": (b'{"a": -Infinity}', "has -Infinity where a number should be"),
    "an endless number": (b'{"a": 1e999}', "has the number 1e999"),
    "a long number": (b'{"a": 0.' + b"1" * 1_000_000 + b"}", "too large or too long"),
    "a long whole number": (b'{"a": ' + b"9" * 5_000 + b"}", "has a whole number of 5000 digits"),
    "a key twice": (b'{"a": 1, "a": 2}', "has the key 'a' twice"),
    "many keys twice": (b'{"b":0' + b"".join(b',"%d":0' % (i // 2) for i in range(300_000)) + b"}", "twice"),
    "half a character": (b'{"a": "\\ud800"}', "has half of a character"),
    "text behind it": (b"{} {}", "is not JSON or is cut short"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_json_that_nobody_of_ours_wrote_is_one_line_and_costs_little(text: bytes, why: str) -> None:
    tracemalloc.start()
    with pytest.raises(PerseusError, match=why) as caught:
        parse_json(text)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def readable(path: Path, flags: int, mode: int = 0o777, opened: Callable[..., int] = os.open) -> int:
    """Open for reading too what would be opened for writing."""
    return opened(path, flags & ~os.O_ACCMODE | os.O_RDWR, mode)


def test_it_is_on_disk_whole_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bool]] = []

    def fsync(descriptor: int) -> None:
        seen.append((os.pread(descriptor, 99, 0), (tmp_path / "file").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "open", readable)
    write_atomically(tmp_path / "file", "whole", sync=True)
    assert seen == [(b"whole", False)]
    write_atomically(tmp_path / "file", "other")
    assert len(seen) == 1
    assert (tmp_path / "file").read_text() == "other"


@pytest.mark.parametrize(("stale", "read"), [(1, True), (3, True), (4, False)])
def test_a_file_that_another_host_has_replaced_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: int, *, read: bool
) -> None:
    path, left, real = tmp_path / "plan.json", [stale], os.read
    path.write_bytes(b"a plan")

    def of_a_network_disk(descriptor: int, most: int) -> bytes:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(descriptor, most)

    monkeypatch.setattr(os, "read", of_a_network_disk)
    if read:
        assert read_bounded(path, most_bytes=100) == b"a plan"
    else:
        with pytest.raises(OSError, match="Stale"):
            read_bounded(path, most_bytes=100)
