"""Files in the notices folder: what is observed, what is ignored, and that each complaint is said once."""

import errno
import json
import os
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from perseus_ds.straggler.notices import Notices

NOW_S = 1_896_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "notices"
    path.mkdir(parents=True, mode=0o755)
    return path


def announced(notices: Notices) -> list[float]:
    return notices.poll().slowdown.tolist()


def test_a_notice_is_heard_changed_withdrawn_and_goes_with_its_folder(folder: Path) -> None:
    notices = Notices(folder, replicas=3)
    path = folder / "pipeline_1.json"
    path.write_text('{"slowdown": 1.2, "reason": "a slow link"}')
    for _ in range(2):
        assert announced(notices) == [1.0, 1.2, 1.0]
    path.write_text('{"slowdown": 1.25}')
    assert announced(notices) == [1.0, 1.25, 1.0]
    (folder / "pipeline_2.json").write_text('{"slowdown": 2}')
    assert announced(notices) == [1.0, 1.25, 2.0]
    path.unlink()
    assert announced(notices) == [1.0, 1.0, 2.0]
    (folder / "pipeline_2.json").unlink()
    folder.rmdir()
    for observed in (notices.poll(), Notices(folder, replicas=3).poll()):
        assert (observed.slowdown.tolist(), observed.warnings) == ([1.0] * 3, ())


BAD = ("", "[1.2]", "{}", '{"slowd', '{"power_w": 5}', '{"slowdown": 1.2, "until": "soon"}')
NO_CAP = ('{"slowdown": 1.2}', '{"power_w": 18', '{"power_w": 5, "until": "soon"}')
WRONG = [
    *(("pipeline_0.json", one) for one in BAD),
    *(
        ("pipeline_0.json", f'{{"slowdown": {one}}}')
        for one in ("0.9", "-1", "1e999", '"1.2"', "true", "null")
    ),
    *(("power_cap.json", f'{{"power_w": {one}}}') for one in ("NaN", "0", "-5", '"1800"', "true")),
    *(("power_cap.json", one) for one in NO_CAP),
]


@pytest.mark.parametrize(("name", "text"), WRONG)
def test_a_wrong_file_is_one_line_once_and_what_held_holds_on(folder: Path, name: str, text: str) -> None:
    notices, path = Notices(folder, replicas=1), folder / name
    path.write_text(whole := '{"slowdown": 1.2, "power_w": 1850}')
    held = notices.poll()
    assert (held.slowdown.tolist(), held.power_w) in [([1.2], None), ([1.0], 1850.0)]
    path.write_text(text)
    observed = notices.poll()
    assert (observed.slowdown.tolist(), observed.power_w) == (held.slowdown.tolist(), held.power_w)
    (line,) = observed.warnings
    assert line.startswith(str(path))
    assert "\n" not in line
    assert notices.poll().warnings == ()
    path.write_text(whole.replace("1.2", "1.3"))
    assert notices.poll().warnings == ()
    path.unlink()
    assert (announced(notices), notices.poll().power_w) == ([1.0], None)


def test_an_unknown_pipeline_is_named_with_those_that_exist(folder: Path) -> None:
    path = folder / "pipeline_7.json"
    path.write_text('{"slowdown": 1.2}')
    observed = Notices(folder, replicas=4).poll()
    (line,) = observed.warnings
    assert line.startswith(f"{path} names pipeline 7")
    assert observed.slowdown.tolist() == [1.0] * 4


def test_other_files_are_nobodys_business_and_pipes_and_folders_no_notices(folder: Path) -> None:
    for name in ("pipeline_x.json", "pipeline_01.json", ".pipeline_1.json.77", "README"):
        (folder / name).write_text('{"slowdown": 1.2}')
    notices = Notices(folder, replicas=2)
    observed = notices.poll()
    assert (observed.slowdown.tolist(), observed.warnings) == ([1.0] * 2, ())
    os.mkfifo(folder / "pipeline_0.json")
    (folder / "pipeline_1.json").mkdir()
    observed = notices.poll()
    assert (observed.slowdown.tolist(), len(observed.warnings)) == ([1.0] * 2, 2)


def test_power_cap_and_slowdown_hold_until_their_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    ends = ({}, 1850.0), ({"until": NOW_S + 5.0}, 1850.0), ({"until": NOW_S}, None)
    for until, power_w in (*ends, ({"until": "2030-01-31T18:00:00+01:00"}, 1850.0)):
        (folder / "power_cap.json").write_text(json.dumps({"power_w": 1850} | until))
        observed = Notices(folder, replicas=1).poll()
        assert (observed.power_w, observed.warnings) == (power_w, ())
    (folder / "pipeline_0.json").write_text(json.dumps({"slowdown": 1.2, "until": NOW_S}))
    notices = Notices(folder, replicas=1)
    for now_s, slowdown in ((NOW_S - 1.0, 1.2), (NOW_S, 1.0)):
        monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
        assert announced(notices) == [slowdown]


def test_a_job_that_ends_well_takes_its_notices_along(folder: Path) -> None:
    for name in ("pipeline_0.json", "power_cap.json", "other.json"):
        (folder / name).write_text('{"slowdown": 1.2}')
    notices = Notices(folder, replicas=2)
    notices.clear()
    assert [path.name for path in folder.iterdir()] == ["other.json"]
    assert announced(notices) == [1.0, 1.0]
    Notices(folder / "missing", replicas=2).clear()


def test_a_file_that_was_not_read_once_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pipeline_1.json").write_text('{"slowdown": 1.4}')
    notices = Notices(folder, replicas=2)
    with monkeypatch.context() as broken:
        broken.setattr(os, "read", MagicMock(side_effect=OSError(errno.EIO, "Input/output error")))
        assert [len(notices.poll().warnings) for _ in range(2)] == [1, 0]
    assert announced(notices) == [1.0, 1.4]
