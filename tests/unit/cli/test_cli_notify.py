"""``perseus-ds notify`` and ``perseus_ds.notify``: what they leave, and what they refuse."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_program import Program, Refused

import perseus_ds
from perseus_ds.errors import PerseusError
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import RankPlace, write_places
from perseus_ds.straggler.notices import Notices


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    attached(path, os.getpid())
    return path


def attached(path: Path, pid: int, **facts: object) -> None:
    here = {"replicas": 4, "host": socket.gethostname(), "pid": pid}
    append_event(RunDirectory(path).events, "attached", here | facts)


def announced(run_dir: Path) -> list[float]:
    observed = Notices(run_dir / "notices", replicas=4).poll()
    assert observed.warnings == ()
    return observed.slowdown.tolist()


def test_what_is_announced_is_heard_until_slowdown_1_or_clear(run_dir: Path, perseus: Program) -> None:
    answer = perseus("notify", run_dir, "--pipeline", 1, "--slowdown", 1.2)
    assert (answer.code, answer.err) == (0, "")
    file = str(run_dir / "notices" / "pipeline_1.json")
    assert file in answer.out
    assert announced(run_dir) == [1.0, 1.2, 1.0, 1.0]
    for _ in range(2):
        answer = perseus("notify", run_dir, "--pipeline", 1, "--slowdown", 1, "--json")
        assert json.loads(answer.out) == {"written": [], "removed": [file], "cleared": False}
        assert announced(run_dir) == [1.0] * 4
    perseus_ds.notify(run_dir, pipeline=1, slowdown=1.2)
    perseus_ds.notify(run_dir, power_w=1850.0)
    assert perseus("notify", run_dir, "--clear").code == 0
    assert list((run_dir / "notices").iterdir()) == []


BAD = [
    (("--pipeline=4", "--slowdown=1.2"), "4"),
    (("--pipeline=-1", "--slowdown=1.2"), "-1"),
    (("--pipeline=1.5", "--slowdown=1.2"), "'1.5'"),
    *((("--pipeline=0", f"--slowdown={one}"), "slowdown") for one in ("0.9", "nan", "inf")),
    (("--pipeline=0", "--slowdown=much"), "'much'"),
    (("--slowdown=1.2",), "pipeline"),
    (("--host=n9", "--slowdown=1.2"), "places"),
    (("--power-cap=nan",), "power_w"),
    (("--power-cap=-5",), "power_w"),
    (("--power-cap=much",), "'much'"),
    (("--power-cap=5", "--until=soon"), "'soon'"),
    (("--power-cap=5", "--until=2020-01-01T00:00"), "until"),
    (("--power-cap=5", "--pipeline=1"), "pipeline"),
    (("--clear", "--pipeline=1"), "all notices"),
]


def test_a_power_cap_beside_a_slowdown_is_refused_and_not_left_out(run_dir: Path) -> None:
    with pytest.raises(PerseusError, match="or a power cap"):
        perseus_ds.notify(run_dir, pipeline=1, slowdown=1.2, power_w=1850.0)
    assert not (run_dir / "notices").exists()


@pytest.mark.parametrize(("words", "named"), BAD)
def test_bad_words(run_dir: Path, refused: Refused, words: tuple[str, ...], named: str) -> None:
    assert named in refused("notify", run_dir, *words)
    assert not (run_dir / "notices").exists()


def test_where_no_job_has_started_or_it_was_killed(tmp_path: Path, refused: Refused) -> None:
    words = ("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert "events.jsonl" in refused(*words)
    append_event(RunDirectory(tmp_path).events, "something", {})
    assert refused(*words).startswith(str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    attached(tmp_path, gone.pid)
    assert "died" in refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)


@pytest.mark.parametrize("event", ["ended", "disabled"])
def test_a_job_that_is_over(run_dir: Path, refused: Refused, event: str) -> None:
    append_event(RunDirectory(run_dir).events, event, {})
    assert refused("notify", run_dir, "--pipeline", 0, "--slowdown", 1.2).startswith(str(run_dir))
    attached(run_dir, os.getpid())
    perseus_ds.notify(run_dir, pipeline=0, slowdown=1.2)
    assert announced(run_dir)[0] == 1.2


def test_a_job_that_would_not_answer(tmp_path: Path, refused: Refused) -> None:
    deaf = {"replicas": 1}, {"start": "observe"}, {"stragglers": False}
    for facts, named in zip(deaf, ("one", "observes", "straggler.enabled"), strict=True):
        attached(tmp_path, os.getpid(), **facts)
        assert named in refused("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)


def test_a_job_of_which_the_journal_cannot_tell_is_believed_to_run(tmp_path: Path, perseus: Program) -> None:
    for facts in ({"pid": 1, "host": "elsewhere.invalid", "replicas": 4}, {}):
        append_event(RunDirectory(tmp_path).events, "attached", facts)
        assert perseus("notify", tmp_path, "--pipeline", 3, "--slowdown", 1.2).code == 0


def test_a_notices_folder_that_is_a_file(run_dir: Path, refused: Refused) -> None:
    (run_dir / "notices").write_text("")
    assert str(run_dir / "notices") in refused("notify", run_dir, "--pipeline", 0, "--slowdown", 1.2)


def test_a_job_holds_a_cap_unless_it_only_observes(run_dir: Path, perseus: Program, refused: Refused) -> None:
    assert perseus("notify", run_dir, "--power-cap", 1850, "--until", "23:59").code == 0
    observed = Notices(run_dir / "notices", replicas=4).poll()
    assert (observed.power_w, observed.warnings) == (1850.0, ())
    assert "until" in json.loads((run_dir / "notices" / "power_cap.json").read_text())
    attached(run_dir, os.getpid(), start="observe")
    assert "observes" in refused("notify", run_dir, "--power-cap", 5)
    attached(run_dir, os.getpid(), replicas=1, stragglers=False)
    perseus_ds.notify(run_dir, power_w=5.0)


def test_a_host_in_maintenance(run_dir: Path, perseus: Program, refused: Refused) -> None:
    places = [RankPlace(rank, 0, f"n{rank // 2}", f"gpu-{rank}") for rank in range(4)]
    write_places(places, RunDirectory(run_dir).places)
    assert perseus("notify", run_dir, "--host", "n1", "--slowdown", 1.3).code == 0
    assert announced(run_dir) == [1.0, 1.0, 1.3, 1.3]
    assert "n9" in refused("notify", run_dir, "--host", "n9", "--slowdown", 1.3)
