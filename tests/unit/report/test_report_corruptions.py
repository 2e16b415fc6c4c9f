"""Damaged files of a run directory: the report refuses each in one line with its name, and waits for none.

Profiles and plans are damaged key by key in `test_profile_files.py` and `test_plan_file.py`.
"""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_program import WriteRun

from perseus_ds.cli import main

pytestmark = pytest.mark.timeout(120)  # what hangs, hangs for good

SUMMARY, TIMELINES, EVENTS = "summary.json", "timelines.json", "events.jsonl"
FILES = ("profile.json", "plan.json", SUMMARY, TIMELINES, EVENTS)


Said = Callable[[Path], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return a function that reports a damaged file alone in its run directory, and returns the one line."""

    def call(file: Path) -> str:
        code = main(["report", str(file.parent)])
        out, err = capsys.readouterr()
        if code == 0:
            return " ".join(out.split())
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert len(err) < 600
        return err

    return call


WHATEVER_IT_IS: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{f"a pipe as {name}": (name, os.mkfifo) for name in FILES},
    "a terabyte of nothing": (EVENTS, lambda file: (file.touch(), os.truncate(file, 1 << 40))),
    "deep": (EVENTS, lambda file: file.write_bytes(b'{"event":' * 50_000 + b"1\n")),
    **{f"half an object in {name}": (name, lambda file: file.write_text("{\n")) for name in FILES},
}


@pytest.mark.parametrize("what", WHATEVER_IT_IS)
def test_what_is_no_file_of_ours_is_refused(what: str, said: Said, tmp_path: Path) -> None:
    name, make = WHATEVER_IT_IS[what]
    make(tmp_path / name)
    assert name in said(tmp_path / name)
    assert not (tmp_path / "report.html").exists()


Damage = Callable[[Any], object]


def put(*way: str | int, to: object) -> Damage:
    def damage(content: Any) -> None:  # noqa: ANN401  # JSON, going down
        for step in way[:-1]:
            content = content[step]
        content[way[-1]] = to

    return damage


def span(key: str, to: object) -> Damage:
    return put(0, "spans", 0, key, to=to)


DAMAGED: dict[str, tuple[str, Damage, str]] = {
    # a summary
    "summary: energy true": (SUMMARY, put("baseline", "energy_j", to=True), "baseline.energy_j is True"),
    "summary: energy 1e300": (SUMMARY, put("baseline", "energy_j", to=1e300), "baseline.energy_j is 1e+300"),
    "summary: time 0": (SUMMARY, put("perseus", "iteration_time_s", to=0), "perseus.iteration_time_s is 0"),
    "summary: a side is a list": (SUMMARY, put("baseline", to=[2.0, 900.0, 9]), "baseline is [2.0,"),
    "summary: not measured": (SUMMARY, put("measured", to=False), "measured is False"),
    "summary: more saved than there is": (SUMMARY, put("predicted_saving_pct", to=101), "is 101"),
    "summary: GPUs true": (SUMMARY, put("facts", "gpus", to=True), "facts.gpus is True"),
    "summary: no GPU": (SUMMARY, put("facts", "gpus", to=0), "facts.gpus is 0"),
    "summary: a GPU of two lines": (SUMMARY, put("facts", "gpu", to="A\nB"), "facts.gpu is 'A\\nB'"),
    "summary: half a letter": (SUMMARY, put("facts", "gpu", to="\ud800"), "half of a character"),
    # timelines
    "timelines: an object": (TIMELINES, put(0, to=5), "0 is 5"),
    "timelines: none": (TIMELINES, lambda c: c.clear(), "it holds none"),
    "timelines: one twice": (TIMELINES, lambda c: c.append(c[0]), "two of one name"),
    "timelines: no time": (TIMELINES, put(0, "iteration_time_s", to=0), "iteration_time_s is 0"),
    "timelines: spans an object": (TIMELINES, put(0, "spans", to={}), "0.spans is {}"),
    "timelines: a duration below 0": (TIMELINES, span("duration_s", -1), "spans.0.duration_s"),
    "timelines: a span too long": (TIMELINES, span("duration_s", 99), "ends after its iteration"),
    "timelines: no such instruction": (TIMELINES, span("instruction", "0Q0"), "'0Q0' is not"),
    "timelines: an instruction twice": (TIMELINES, lambda c: c[0]["spans"].append(c[0]["spans"][0]), "twice"),
    "timelines: a stage without a rank": (TIMELINES, put(0, "rank_of_stage", to=[0]), "rank_of_stage does"),
    # events: the second line
    "events: a list": (EVENTS, put(1, to=[1]), "line 2 is not an event"),
    "events: no name": (EVENTS, lambda c: c[1].pop("event"), "line 2 is not an event"),
    "events: a name of lists": (EVENTS, put(1, "event", to=["running"]), "line 2 event is ["),
    "events: a line that is a list": (EVENTS, put(1, "line", to=["a"]), "line 2 line is ["),
}


def damaged(run: Path, name: str, damage: Damage, to: Path) -> Path:
    """Leave one file of a run alone in a folder, damaged."""
    text = (run / name).read_text()
    content = [json.loads(line) for line in text.splitlines()] if name == EVENTS else json.loads(text)
    damage(content)
    rows = content if name == EVENTS else [content]
    (to / name).write_text("".join(json.dumps(one) + "\n" for one in rows))
    return to / name


@pytest.fixture
def run(write_run: WriteRun) -> Path:
    here = {"replicas": 2, "pid": os.getpid(), "host": socket.gethostname()}
    return write_run(events=[{"event": "attached", **here}, {"event": "running", "plan": 1}])


@pytest.mark.parametrize("what", DAMAGED)
def test_what_means_nothing_is_refused_by_its_key(what: str, run: Path, said: Said, tmp_path: Path) -> None:
    name, damage, why = DAMAGED[what]
    line = said(damaged(run, name, damage, tmp_path))
    assert why in line
    assert name in line


JOURNALS: dict[str, Damage] = {
    "a number of processes": put(0, "pid", to=10**17),
    "a process below 0": put(0, "pid", to=-1),
    "pipelines true": put(0, "replicas", to=True),
    "a mode of lists": put(0, "mode", to=["run"]),
    "a host of numbers": put(0, "host", to=7),
}


@pytest.mark.parametrize("what", JOURNALS)
def test_a_journal_with_strange_facts_changes_nothing(what: str, run: Path, tmp_path: Path) -> None:
    damaged(run, EVENTS, JOURNALS[what], tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert main(["notify", str(tmp_path), "--pipeline", "0", "--slowdown", "1.2"]) == 0
