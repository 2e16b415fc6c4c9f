"""Damaged files of a run directory, each given to the program that reads them.

Every one is refused in one line that names the file, or changes nothing; none is a traceback, none is waited
for. Profiles and plans are damaged key by key in `test_profile_files.py` and `test_plan_file.py`.
"""

import copy
import itertools
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program
from textbook_gpu import textbook_profile

from perseus_ds.plan import build, write_plans
from perseus_ds.plan.clock_requests import play
from perseus_ds.profile import write_profile
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import (
    MeasuredSide,
    RecordedIteration,
    Span,
    Summary,
    write_summary,
    write_timelines,
)
from perseus_ds.schedule import textbook

pytestmark = pytest.mark.timeout(120)  # what hangs, hangs for good

PROFILE, PLAN, SUMMARY, TIMELINES, EVENTS = (
    "profile.json",
    "plan.json",
    "summary.json",
    "timelines.json",
    "events.jsonl",
)
FILES = (PROFILE, PLAN, SUMMARY, TIMELINES, EVENTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run directory as a job leaves it."""
    run = RunDirectory(tmp_path_factory.mktemp("whole"))
    profile = textbook_profile([1.0, 1.2])
    plans = build(profile, textbook("1f1b", stages=2, microbatches=2), blocking_power_w=70.0)
    write_profile(profile, run.profile)
    write_plans(plans, run.plan)
    facts = {"gpu": "A100", "gpus": 2, "plan": 1}
    write_summary(
        Summary(MeasuredSide(2.0, 900.0, 9), MeasuredSide(2.0, 800.0, 30), True, 11.0, facts), run.summary
    )
    spans = tuple(
        Span(p.instruction, p.start_s, p.duration_s, p.clock_mhz, p.energy_j / p.duration_s)
        for p in play(plans.plan(1))
        if p.parts
    )
    write_timelines(
        [RecordedIteration("perseus", plans.plan(1).iteration_time_s, 70.0, True, spans)], run.timelines
    )
    append_event(run.events, "attached", {"replicas": 2, "pid": os.getpid(), "host": socket.gethostname()})
    append_event(run.events, "running", {"plan": 1})
    return run


@pytest.fixture
def said(perseus: Program, whole: RunDirectory, tmp_path: Path) -> Callable[[Path], str]:
    """What the program says of a damaged file that lies alone in its run directory: one line."""

    def call(file: Path) -> str:
        if file.name == PROFILE:
            answer = perseus("plan", file, "--stages", 2, "--microbatches", 2, "-o", tmp_path / "new.json")
        elif file.name == PLAN:
            answer = perseus("verify", file)
        else:
            answer = perseus("report", file.parent)
        assert "Traceback" not in answer.err
        if answer.code == 0:
            return " ".join(answer.out.split())
        assert (answer.code, answer.out) == (1, "")
        lines = [one for one in answer.err.splitlines() if "assuming a blocking power" not in one]
        assert len(lines) == 1
        assert len(lines[0]) < 600
        return lines[0]

    return call


def fifo(file: Path) -> None:
    os.mkfifo(file)


def listening(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(file))


def sparse(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 40)


WHATEVER_IT_IS: dict[str, Callable[[Path], object]] = {
    "a pipe": fifo,
    "a folder": lambda file: file.mkdir(),
    "a socket": listening,
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "a terabyte of nothing": sparse,
    "empty": lambda file: file.write_bytes(b""),
    "bytes": lambda file: file.write_bytes(b"\xff\xfe\x00\n"),
    "a number": lambda file: file.write_bytes(b"3\n"),
    "null": lambda file: file.write_bytes(b"null\n"),
    "deep": lambda file: file.write_bytes(b'{"event":' * 50_000 + b"1\n"),
    "many values": lambda file: file.write_bytes(b"[" + b"1," * 4_000_000 + b"1]\n"),
}


@pytest.mark.parametrize(("what", "name"), list(zip(WHATEVER_IT_IS, itertools.cycle(FILES), strict=False)))
def test_what_is_no_file_of_ours_is_refused(
    name: str, what: str, said: Callable[[Path], str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    WHATEVER_IT_IS[what](run / name)
    assert name in said(run / name)
    assert not (run / "report.html").exists()


Damage = Callable[[Any], object]


def put(*way: str | int, to: object) -> Damage:
    def damage(content: Any) -> None:  # noqa: ANN401  # JSON, going down
        for step in way[:-1]:
            content = content[step]
        content[way[-1]] = to

    return damage


POINT, SPAN, TWO = ("points", 0), (0, "spans", 0), ("baseline",)
DAMAGED: dict[str, tuple[str, Damage, str]] = {
    # a summary
    "summary: energy true": (SUMMARY, put(*TWO, "energy_j", to=True), "baseline.energy_j is True"),
    "summary: energy 1e300": (SUMMARY, put(*TWO, "energy_j", to=1e300), "baseline.energy_j is 1e+300"),
    "summary: time 0": (SUMMARY, put("perseus", "iteration_time_s", to=0), "perseus.iteration_time_s is 0"),
    "summary: a side is a list": (
        SUMMARY,
        put("baseline", to=[2.0, 900.0, 9]),
        "baseline is [2.0,",
    ),
    "summary: not measured": (SUMMARY, put("measured", to=False), "measured is False"),
    "summary: more saved than there is": (SUMMARY, put("predicted_saving_pct", to=101), "is 101"),
    "summary: GPUs true": (SUMMARY, put("facts", "gpus", to=True), "facts.gpus is True"),
    "summary: a GPU of two lines": (SUMMARY, put("facts", "gpu", to="A\nB"), "facts.gpu is 'A\\nB'"),
    "summary: half a letter": (SUMMARY, put("facts", "gpu", to="\ud800"), "half of a character"),
    # timelines
    "timelines: an object": (TIMELINES, put(0, to=5), "0 is 5"),
    "timelines: none": (TIMELINES, lambda c: c.clear(), "it holds none"),
    "timelines: one twice": (TIMELINES, lambda c: c.append(c[0]), "two of one name"),
    "timelines: no time": (TIMELINES, put(0, "iteration_time_s", to=0), "iteration_time_s is 0"),
    "timelines: spans an object": (TIMELINES, put(0, "spans", to={}), "0.spans is {}"),
    "timelines: a duration below 0": (TIMELINES, put(*SPAN, "duration_s", to=-1), "spans.0.duration_s"),
    "timelines: a span too long": (TIMELINES, put(*SPAN, "duration_s", to=99), "ends after its iteration"),
    "timelines: no such instruction": (TIMELINES, put(*SPAN, "instruction", to="0Q0"), "'0Q0' is not"),
    "timelines: an instruction twice": (TIMELINES, lambda c: c[0]["spans"].append(c[0]["spans"][0]), "twice"),
    "timelines: a stage without a rank": (TIMELINES, put(0, "rank_of_stage", to=[0]), "rank_of_stage does"),
    # events: the second line
    "events: a list": (EVENTS, put(1, to=[1]), "line 2 is not an event"),
    "events: no name": (EVENTS, lambda c: c[1].pop("event"), "line 2 is not an event"),
    "events: a name of lists": (EVENTS, put(1, "event", to=["running"]), "line 2 event is ["),
    "events: a line that is a list": (EVENTS, put(1, "line", to=["a"]), "line 2 line is ["),
}


def text_of(name: str, content: Any) -> str:  # noqa: ANN401  # JSON
    if name == EVENTS:
        return "".join(json.dumps(one) + "\n" for one in content)
    return json.dumps(content)


def content_of(whole: RunDirectory, name: str) -> Any:  # noqa: ANN401  # JSON
    text = (whole.path / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if name == EVENTS else json.loads(text)


@pytest.mark.parametrize("what", DAMAGED)
def test_what_means_nothing_is_refused_by_its_key(
    what: str, whole: RunDirectory, said: Callable[[Path], str], tmp_path: Path
) -> None:
    name, damage, why = DAMAGED[what]
    content = copy.deepcopy(content_of(whole, name))
    damage(content)
    file = tmp_path / "run" / name
    file.parent.mkdir()
    file.write_text(text_of(name, content))
    line = said(file)
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
def test_a_journal_with_strange_facts_changes_nothing(
    what: str, whole: RunDirectory, perseus: Program, tmp_path: Path
) -> None:
    content = copy.deepcopy(content_of(whole, EVENTS))
    JOURNALS[what](content)
    (tmp_path / EVENTS).write_text(text_of(EVENTS, content))
    assert perseus("report", tmp_path).code == 0
    answer = perseus("notify", tmp_path, "--pipeline", 0, "--slowdown", 1.2)
    assert "Traceback" not in answer.err
    assert answer.code == 0
