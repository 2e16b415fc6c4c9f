"""Files in the notices folder: what is observed, what is ignored, and that each complaint is said once."""

import errno
import json
import os
from pathlib import Path

import pytest

from perseus_ds.straggler import Notices, PowerCaps
from perseus_ds.straggler.ceiling.power_caps import CAP_FILE

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "notices"
    path.mkdir(parents=True, mode=0o755)
    return path


def announced(notices: Notices) -> list[float]:
    return notices.poll().announced.tolist()


def test_no_folder_is_no_notice(tmp_path: Path) -> None:
    observed = Notices(tmp_path / "notices", replicas=3).poll()
    assert observed.announced.tolist() == [1.0, 1.0, 1.0]
    assert observed.complaints == ()


def test_a_notice_is_heard_changed_and_withdrawn(folder: Path) -> None:
    notices = Notices(folder, replicas=3)
    path = folder / "pipeline_1.json"
    path.write_text('{"slowdown": 1.2, "reason": "a slow link"}')
    assert announced(notices) == [1.0, 1.2, 1.0]
    assert announced(notices) == [1.0, 1.2, 1.0]
    path.write_text('{"slowdown": 1.25}')
    assert announced(notices) == [1.0, 1.25, 1.0]
    (folder / "pipeline_2.json").write_text('{"slowdown": 2}')
    assert announced(notices) == [1.0, 1.25, 2.0]
    path.unlink()
    assert announced(notices) == [1.0, 1.0, 2.0]


def test_a_folder_that_goes_takes_its_notices_along(folder: Path) -> None:
    notices = Notices(folder, replicas=2)
    (folder / "pipeline_0.json").write_text('{"slowdown": 1.5}')
    assert announced(notices) == [1.5, 1.0]
    (folder / "pipeline_0.json").unlink()
    folder.rmdir()
    assert announced(notices) == [1.0, 1.0]


def test_a_half_written_file_is_said_once_and_heard_when_whole(folder: Path) -> None:
    notices = Notices(folder, replicas=2)
    path = folder / "pipeline_1.json"
    path.write_text('{"slowdown": 1.1}')
    assert announced(notices) == [1.0, 1.1]
    path.write_text('{"slowd')
    first, second = notices.poll(), notices.poll()
    assert first.announced.tolist() == [1.0, 1.1], "what held before holds on"
    (line,) = first.complaints
    assert line.startswith(f"{path} is not JSON or is cut short: ")
    assert line.endswith(": ignored")
    assert second.complaints == ()
    path.write_text('{"slowdown": 1.3}')
    assert announced(notices) == [1.0, 1.3]


WRONG = [
    (b"", "is not JSON or is cut short"),
    (b"\xff\xfe", "is not text: byte 0 is no UTF-8"),
    (b"[1.2]", 'has no "slowdown"'),
    (b"{}", 'has no "slowdown"'),
    (b'{"slowdown": 0.9}', "slowdown 0.9 is below 1: 1.2 means an iteration takes 20 % longer"),
    (b'{"slowdown": -1}', "slowdown -1 is below 1"),
    (b'{"slowdown": NaN}', "has NaN where a number should be"),
    (b'{"slowdown": 1e999}', "has the number 1e999, which is too large or too long"),
    (b'{"slowdown": 1' + b"0" * 400 + b"}", "has a whole number of 401 digits"),
    (b'{"slowdown": "1.2"}', "slowdown '1.2' is not a number"),
    (b'{"slowdown": true}', "slowdown True is not a number"),
    (b'{"slowdown": null}', "slowdown None is not a number"),
    (b'{"slowdown": 1.2, "until": 3}', "has an unknown key 'until'"),
    (b" " * 5000, "has 5000 bytes, 4096 are allowed"),
]


def test_a_deep_file_is_one_line_in_every_python(folder: Path) -> None:
    """How deep a parser goes is the interpreter's: 3.13 reads to the end of what 3.11 gives up on."""
    path = folder / "pipeline_0.json"
    path.write_bytes(b"[" * 4000)
    (line,) = Notices(folder, replicas=1).poll().complaints
    reasons = "is nested too deeply", "is not JSON or is cut short"
    assert line.startswith(tuple(f"{path} {reason}" for reason in reasons))


@pytest.mark.parametrize(("content", "reason"), WRONG)
def test_a_wrong_file_is_one_line(folder: Path, content: bytes, reason: str) -> None:
    path = folder / "pipeline_0.json"
    path.write_bytes(content)
    observed = Notices(folder, replicas=1).poll()
    assert observed.announced.tolist() == [1.0]
    (line,) = observed.complaints
    assert line.startswith(f"{path} {reason}")
    assert line.endswith(": ignored")
    assert "\n" not in line


def test_an_unknown_pipeline_is_named_with_those_that_exist(folder: Path) -> None:
    path = folder / "pipeline_7.json"
    path.write_text('{"slowdown": 1.2}')
    observed = Notices(folder, replicas=4).poll()
    assert observed.complaints == (f"{path} names pipeline 7, the job has 0 to 3: ignored",)
    assert observed.announced.tolist() == [1.0] * 4


@pytest.mark.parametrize("name", ["pipeline_x.json", "pipeline_01.json", ".pipeline_1.json.77", "README"])
def test_other_files_are_nobodys_business(folder: Path, name: str) -> None:
    (folder / name).write_text('{"slowdown": 1.2}')
    observed = Notices(folder, replicas=2).poll()
    assert observed.announced.tolist() == [1.0, 1.0]
    assert observed.complaints == ()


def test_a_file_that_everyone_may_write_is_refused(folder: Path) -> None:
    path = folder / "pipeline_0.json"
    path.write_text('{"slowdown": 1.2}')
    path.chmod(0o666)
    notices = Notices(folder, replicas=1)
    observed = notices.poll()
    assert observed.announced.tolist() == [1.0]
    assert observed.complaints == (f"{path} can be written by everyone: ignored",)
    path.chmod(0o644)
    assert announced(notices) == [1.2]


def test_a_folder_that_everyone_may_write_is_refused_once(folder: Path) -> None:
    (folder / "pipeline_0.json").write_text('{"slowdown": 1.2}')
    folder.chmod(0o777)
    notices = Notices(folder, replicas=1)
    observed = notices.poll()
    assert observed.announced.tolist() == [1.0]
    assert observed.complaints == (f"{folder} can be written by everyone: notices are ignored",)
    assert notices.poll().complaints == ()
    folder.chmod(0o755)
    assert announced(notices) == [1.2]


def test_links_pipes_and_folders_are_no_notices(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"slowdown": 1.2}')
    (folder / "pipeline_0.json").symlink_to(elsewhere)
    os.mkfifo(folder / "pipeline_1.json")
    (folder / "pipeline_2.json").mkdir()
    observed = Notices(folder, replicas=3).poll()
    assert observed.announced.tolist() == [1.0] * 3
    assert len(observed.complaints) == 3
    assert observed.complaints[1].endswith("is not an ordinary file: ignored")
    assert observed.complaints[2].endswith("is not an ordinary file: ignored")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_only_the_run_directorys_owner_and_root_are_believed(folder: Path) -> None:
    for pipeline, owner in enumerate((NOBODY, 0, 1)):
        path = folder / f"pipeline_{pipeline}.json"
        path.write_text(json.dumps({"slowdown": 1.2}))
        os.chown(path, owner, -1)
    os.chown(folder.parent, NOBODY, -1)
    observed = Notices(folder, replicas=3).poll()
    assert observed.announced.tolist() == [1.2, 1.2, 1.0]
    (line,) = observed.complaints
    assert line.endswith("pipeline_2.json belongs to user 1, who is not believed here: ignored")


def test_a_job_that_ends_well_takes_its_notices_along(folder: Path) -> None:
    for name in ("pipeline_0.json", "pipeline_1.json", "other.json"):
        (folder / name).write_text('{"slowdown": 1.2}')
    notices = Notices(folder, replicas=2)
    notices.clear()
    assert [path.name for path in folder.iterdir()] == ["other.json"]
    assert announced(notices) == [1.0, 1.0]
    Notices(folder / "missing", replicas=2).clear()


def test_a_file_that_could_not_be_read_once_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pipeline_1.json").write_text('{"slowdown": 1.4}')
    (folder / CAP_FILE).write_text('{"power_cap_w": 500}')
    notices, caps = Notices(folder, replicas=2), PowerCaps(folder)
    with monkeypatch.context() as broken:
        broken.setattr(os, "read", fails)
        for told in (1, 0):
            assert len(notices.poll().complaints) == len(caps.poll(0.0).complaints) == told
    assert announced(notices) == [1.0, 1.4]
    cap = caps.poll(0.0).cap
    assert cap is not None
    assert cap.power_cap_w == 500


def fails(*_: object) -> bytes:
    raise OSError(errno.EIO, "Input/output error")
