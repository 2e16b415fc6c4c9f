"""The service's socket: whose it is, and whose file is never removed for it."""

import os
import socket
import stat
from pathlib import Path

import pytest

from perseus_ds.errors import ConfigError, DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.protocol import KIND
from perseus_ds.guard.service import Listener


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "guardd.sock"


def test_it_is_ours_and_its_groups_and_nobody_elses(path: Path) -> None:
    listener = Listener(path, str(os.getgid()))
    found = path.lstat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
    with socket.socket(socket.AF_UNIX, KIND) as client:
        client.connect(str(path))
    listener.close()
    assert not path.exists()


def test_a_second_service_is_refused_and_the_first_goes_on(path: Path) -> None:
    first = Listener(path, None)
    with pytest.raises(DeviceUnavailableError, match="another guardd"):
        Listener(path, None)
    with socket.socket(socket.AF_UNIX, KIND) as client:
        client.connect(str(path))
    first.close()


def test_the_socket_of_a_service_that_is_gone_is_taken_over(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, KIND) as dead:
        dead.bind(str(path))
    Listener(path, None).close()


def test_what_is_no_socket_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(DevicePermissionError, match="no socket"):
        Listener(path, None)
    assert path.read_text() == "precious"


def test_a_socket_that_somebody_put_in_its_place_is_not_removed(path: Path) -> None:
    listener = Listener(path, None)
    path.unlink()
    path.write_text("another's")
    listener.close()
    assert path.exists()


def test_a_group_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-group"):
        Listener(path, "no-such-group")
    assert not path.exists()
