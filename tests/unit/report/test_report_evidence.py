"""Critical path, energy, worth, stragglers and trace: what stands beside the saving."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cli_program import points, recorded, unpacked

from perseus_ds.plan import FrequencyPlan, PlanSet, build
from perseus_ds.plan.clock_requests import play
from perseus_ds.profile import Profile
from perseus_ds.report.figures import EnergyPrices, event_row, fact_rows, straggler_rows
from perseus_ds.report.page import clocks_mhz, timeline_data
from perseus_ds.report.read import critical_path
from perseus_ds.report.timeline import energy_j, rank_rows, write_trace
from perseus_ds.run_directory.records import MeasuredSide, RecordedIteration, Span, Summary
from perseus_ds.schedule import Instruction, Kind, textbook


def test_a_critical_path_has_no_gap_from_the_first_instruction_to_the_last(plans: PlanSet) -> None:
    found = recorded("perseus", play(plans.plan(0)), plans.plan(0).iteration_time_s)
    place = {span.instruction: span for span in found.spans}
    path = critical_path(found, plans.schedule)
    assert place[path[0]].start_s == 0.0
    assert sum(place[one].duration_s for one in path) == pytest.approx(found.iteration_time_s)
    for before, after in pairwise(path):
        assert place[before].start_s + place[before].duration_s == pytest.approx(place[after].start_s)


def test_the_critical_path_by_hand() -> None:
    schedule = textbook("1f1b", stages=2, microbatches=2)
    seconds = {"0F": 1.0, "0B": 1.0, "1F": 2.0, "1B": 2.0}
    starts = {"0F0": 0.0, "0F1": 1.0, "1F0": 1.0, "1B0": 3.0, "1F1": 5.0, "1B1": 7.0, "0B0": 5.0, "0B1": 9.0}
    spans = tuple(Span(Instruction.parse(i), at_s, seconds[i[:2]], 1000, 100.0) for i, at_s in starts.items())
    path = critical_path(RecordedIteration("baseline", 10.0, 50.0, simulated=True, spans=spans), schedule)
    assert list(map(str, path)) == ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"]


def test_what_a_saving_is_worth_at_the_pace_that_the_job_has_now() -> None:
    """1 kJ less in each iteration of 2 s: 43 200 iterations a day, 12 kWh; of 2.4 s: 36 000, 10 kWh."""
    before, same, slower = (MeasuredSide(*side, 3) for side in ((2.0, 1e4), (2.0, 9e3), (2.4, 9e3)))
    prices = EnergyPrices(price_per_kwh=0.25, gco2_per_kwh=400.0, pue=1.2)
    energy, money, co2 = prices.per_day(Summary(before, same, False, 10.0, {})).values()
    assert (energy, money.split()[0], co2.split()[0]) == ("14.40 kWh", "3.600", "5.760")
    free = EnergyPrices().per_day(Summary(before, slower, False, 10.0, {}))
    assert list(free.values()) == ["10.00 kWh"], "without a price there is no money"


def test_stragglers_are_rows_from_their_coming_to_their_going() -> None:
    slow = {"stragglers": [{"replica": 1, "slowdown": 1.2, "cause": "measured"}], "sync_time_s": 3.0}
    at = "2026-01-01T10:00:0{}+00:00".format
    events = [
        {"event": "straggler", "time": at(1), **slow},
        {"event": "straggler", "time": at(2), **slow},
        {"event": "straggler_gone", "time": at(3)},
        {"event": "straggler", "time": at(4), "stragglers": "torn"},
    ]
    first, second = straggler_rows(events)
    assert [*first[:2], *first[3:]] == ["10:00:01", "10:00:03", "3 s", "2"]
    assert {"1", "x1.20"} <= set(first[2].split())
    assert second[:3] == ["10:00:04", "still there", "-"]


def test_the_trace_is_valid_and_its_power_is_the_energy(plans: PlanSet, tmp_path: Path) -> None:
    found = recorded("perseus", play(plans.plan(0)), plans.plan(0).iteration_time_s)
    path = critical_path(found, plans.schedule)
    content = json.loads(write_trace([found], tmp_path / "t.json", critical={"perseus": path}).read_text())
    events = content["traceEvents"]
    needed = {"M": set(), "X": {"ts", "dur", "tid"}, "C": {"ts"}}
    assert all({"name", "pid", "args"} | needed[event["ph"]] <= set(event) for event in events)
    assert min(event.get(key, 0.0) for event in events for key in ("ts", "dur")) == 0.0
    boxes = [event for event in events if event["ph"] == "X"]
    assert len(boxes) == len(found.spans)
    assert {e["name"] for e in boxes if e["args"]["critical"]} == set(map(str, path))
    power = [(e["ts"], e["args"]["W"]) for e in events if e["name"] == "power of the pipeline"]
    when_us, watts = map(np.array, zip(*power, strict=True))
    assert (np.diff(when_us) > 0).all()
    assert watts[-1] == 0.0
    assert (np.diff(when_us) * watts[:-1]).sum() / 1e6 == pytest.approx(energy_j(found), rel=1e-4)
    clocks = [e for e in events if e["ph"] == "C" and e["name"].startswith("clock of")]
    assert {e["args"]["MHz"] for e in clocks} == {span.clock_mhz for span in found.spans}


def boxes(*spans: tuple[str, float, float, float | None]) -> RecordedIteration:
    rows = tuple(Span(Instruction.parse(text), at_s, long, None, watts) for text, at_s, long, watts in spans)
    return RecordedIteration("baseline", 1.0, 50.0, simulated=False, spans=rows)


@pytest.mark.parametrize(
    ("spans", "idle_s"),
    [
        ([("0B0", 0.6, 0.2, 300.0), ("0F0", 0.1, 0.3, 200.0)], 0.5),
        ([("0F0", 0.0, 1.0, 200.0)], 0.0),
        ([("0F0", 0.0, 0.8, 200.0), ("0L0", 0.1, 0.1, None)], 0.2),
    ],
    ids=["gaps", "a full lane", "overlapping spans"],
)
def test_idle_is_where_no_span_is(spans: list[tuple[str, float, float, float | None]], idle_s: float) -> None:
    [lane] = rank_rows(boxes(*spans))
    assert str(lane.spans[0].instruction) == "0F0"
    assert lane.idle_s == pytest.approx(idle_s)


def test_energy_counts_work_at_its_power_and_all_else_at_blocking_power() -> None:
    found = boxes(("0F0", 0.0, 0.5, 200.0), ("0AR0", 0.5, 0.3, None), ("1F0", 0.5, 0.5, 100.0))
    assert energy_j(found) == pytest.approx(0.5 * 200 + 0.5 * 100 + 50 * (2.0 - 1.0))
    [panel] = timeline_data([boxes(("0F0", 0.0, 1.0, 200.0))], {})["panels"]
    assert unpacked(panel["mhz"]).tolist() == [0]


def test_an_event_tells_its_line_and_an_unknown_one_its_facts_with_units() -> None:
    event = {"time": "2026-01-02T03:04:05.678+00:00", "event": "running", "plan": 3, "line": "plan 3"}
    assert event_row(event) == ["03:04:05", "running", "plan 3"]
    novel = {"event": "all_new", "clock_mhz": 1200, "saving_pct": 12.345678, "time_s": 0.25, "why_not": "no"}
    time, name, facts = event_row(novel)
    assert (time, name) == ("", "all new")
    assert {"1200", "MHz", "12.346", "%", "0.25", "s"} <= set(facts.replace(",", "").split())


def test_facts_within_facts_have_rows_of_their_own_and_no_syntax() -> None:
    worth = {"baseline": {"energy_j": 2.5}}
    facts = {"worth": worth, "clocks_mhz": [1410, 705], "reserve_pct": "automatic", "simulated": True}
    rows = fact_rows(facts | {"rows": [{"a_s": 1.0}]})
    assert {tuple(name.split(", ")): text.split() for name, text in rows} == {
        ("worth", "baseline", "energy"): ["2.5", "J"],
        ("clocks",): ["1410,", "705", "MHz"],
        ("reserve",): ["automatic"],
        ("simulated",): ["yes"],
        ("rows",): ["(a", "1", "s)"],
    }


# A V schedule with split backwards: a lane per rank, a stripe per chunk, every kind.

KINDS = {Kind.FORWARD: 0.05, Kind.BACKWARD_INPUT: 0.055, Kind.BACKWARD_WEIGHT: 0.045}


@pytest.fixture(scope="module")
def zbv() -> FrequencyPlan:
    profile = Profile({(s, k): points(t * (1 + 0.1 * s)) for s in range(8) for k, t in KINDS.items()})
    return build(profile, textbook("zbv", stages=8, microbatches=8), blocking_power_w=70.0).plan(0)


def test_a_lane_for_every_rank_with_both_its_chunks(zbv: FrequencyPlan) -> None:
    ranks = zbv.of.schedule.rank_of_stages()
    rank_of_stage = tuple(ranks[stage] for stage in range(8))
    found = recorded("perseus", play(zbv), zbv.iteration_time_s, rank_of_stage=rank_of_stage)
    lanes = [(lane.name, lane.stages) for lane in rank_rows(found)]
    assert lanes == [("rank 0", (0, 7)), ("rank 1", (1, 6)), ("rank 2", (2, 5)), ("rank 3", (3, 4))]
    assert energy_j(found) == pytest.approx(zbv.energy_j)


def test_clocks_of_three_kinds_have_a_row_per_model_stage(zbv: FrequencyPlan) -> None:
    found = clocks_mhz(zbv.of, [zbv.index])[0]
    assert found.shape == (3 * 8, 8)
    for one, shares in zbv.portions().items():
        options = zbv.of.options[one.stage, one.kind]
        mhz = sum(share * options.mean_mhz(option) for option, share in shares)
        assert found[list(KINDS).index(one.kind) * 8 + one.stage, one.microbatch] == round(mhz)
