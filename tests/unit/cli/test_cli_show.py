"""``perseus-ds show``: the right plan, three forms, and bad plan files refused in one line."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from cli_program import Program, Refused
from schedules import clocks_of_stage

from perseus_ds.config import Objective
from perseus_ds.plan import FrequencyPlan, PlanSet, read_plans, select
from perseus_ds.plan.select import with_plan_within
from perseus_ds.profile import read_profile


@pytest.fixture
def plans(plan_file: Path) -> PlanSet:
    return read_plans(plan_file)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.thorough
def test_csv_adds_up_to_the_plan(perseus: Program, plan_file: Path, plans: PlanSet) -> None:
    plan = select(plans, Objective())
    rows = _rows(perseus("show", plan_file, "--format", "csv").out)
    end_s = max(float(row["start_s"]) + float(row["duration_s"]) for row in rows)
    worked_s = sum(float(row["duration_s"]) for row in rows)
    worked_j = sum(float(row["energy_j"]) for row in rows)
    assert end_s == pytest.approx(plan.iteration_time_s)
    assert worked_j + 70 * (2 * end_s - worked_s) == pytest.approx(plan.energy_j)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "objective"),
    [
        ((), Objective()),
        (("--max-slowdown", 10), Objective("max_slowdown", max_slowdown_pct=10.0)),
        (("--max-slowdown", 0), Objective("max_slowdown", max_slowdown_pct=0.0)),
        (("--deadline", 0.8), Objective("deadline", deadline_s=0.8)),
        (("--power-cap", 420), Objective("power_cap", power_cap_w=420.0)),
        (("--min-energy",), Objective("min_energy")),
    ],
)
def test_every_choice_goes_through_select(
    perseus: Program, plan_file: Path, plans: PlanSet, words: tuple[object, ...], objective: Objective
) -> None:
    shown = json.loads(perseus("show", plan_file, *words, "--format", "json").out)
    plan = select(with_plan_within(plans, objective), objective)
    assert shown["iteration_time_s"] == plan.iteration_time_s
    assert shown["energy_j"] == plan.energy_j
    assert len(shown["instructions"]) == 12 + sum(len(parts) - 1 for parts in plan.portions().values())


@pytest.mark.thorough
def test_the_table_is_a_grid_of_clocks(perseus: Program, plan_file: Path, plans: PlanSet) -> None:
    text = perseus("show", plan_file).out
    plan = select(plans, Objective())
    assert text.startswith(f"plan {plan.index} of {len(plans)} ")
    assert f"{plan.saving_pct:.1f} %" in text
    assert "0.69 s" in text
    rows = {line[:10]: line[11:].split() for line in text.splitlines() if "stage" in line[:10]}
    assert [row.split()[::2] for row in rows] == [["F", "0"], ["F", "1"], ["B", "0"], ["B", "1"]]
    for instruction, portions in plan.portions().items():
        clocks = plans.options[instruction.stage, instruction.kind].clock_mhz
        cell = rows[f"{instruction.kind.value} stage {instruction.stage} "][instruction.microbatch]
        assert cell == "-".join(str(clocks[option]) for option, _ in portions)


@pytest.mark.thorough
def test_what_no_plan_keeps_says_the_nearest(refused: Refused, plan_file: Path) -> None:
    assert "0.69 s" in refused("show", plan_file, "--deadline", 0.5)
    assert "10 W" in refused("show", plan_file, "--power-cap", 10)


def test_a_stragglers_wait_counts_on_both_sides(perseus: Program, plan_file: Path, plans: PlanSet) -> None:
    baseline, straggler_s = plans.baseline, 2.0 * plans.baseline.iteration_time_s
    told = perseus("show", plan_file, "--straggler", str(straggler_s)).out
    line = " ".join(told[told.index("beside a straggler") :].split())
    waited_j = baseline.energy_j + 70.0 * 2 * (straggler_s - baseline.iteration_time_s)
    least_j = float(plans.effective_energy_j.min()) + 70.0 * 2 * straggler_s
    assert f"{least_j:.6g} J" in line
    assert f"of {waited_j:.6g} J" in line


def test_power_tells_schedulers_the_whole_frontier(perseus: Program, plan_file: Path, plans: PlanSet) -> None:
    content = json.loads(perseus("show", plan_file, "--power", "--format", "json").out)
    table = content["power_s_table"]
    assert content["default"]["iteration_time_s"] == plans.baseline.iteration_time_s
    for row in table:
        assert row["power_w"] == pytest.approx(float(plans.energy_j[row["plan"]]) / row["iteration_time_s"])
    cap_w = table[len(table) // 2]["power_w"]
    chosen = select(plans, Objective("power_cap", power_cap_w=cap_w * (1 + 1e-12)))
    assert chosen.index == table[len(table) // 2]["plan"]
    rows = _rows(perseus("show", plan_file, "--power", "--format", "csv").out)
    assert [float(row["swing_w"]) for row in rows] == [row["swing_w"] for row in table]


def test_a_profile_is_printed_and_read_back(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "p.json", tmp_path / "p.csv"
    ours.write_text(perseus("show", profile_csv, "--format", "json").out)
    theirs.write_text(perseus("show", ours, "--format", "csv").out)
    first, last = read_profile(profile_csv), read_profile(theirs)
    assert [first.of(*key) for key in first.points] == [last.of(*key) for key in last.points]
    assert read_profile(ours).points == first.points
    assert "1400" in perseus("show", ours).out
    assert perseus("plan", ours, "--stages", 2, "--microbatches", 3).code == 0


def test_a_profile_has_no_plan_to_choose(refused: Refused, profile_csv: Path) -> None:
    assert "--plan" in refused("show", profile_csv, "--plan", 1)
    profile_csv.write_text("stage\n")
    assert "instruction" in refused("show", profile_csv)


def test_a_run_directory_stands_for_its_plan(perseus: Program, plan_file: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    without = perseus("show", run_dir)
    assert (without.code, "plan.json" in without.err) == (1, True)
    (run_dir / "plan.json").write_bytes(plan_file.read_bytes())
    assert perseus("show", run_dir).out == perseus("show", plan_file).out


# `--graph`: a plan as other tools read it, its slack held against every path there is.


@pytest.fixture
def plan(plan_file: Path) -> FrequencyPlan:
    return select(read_plans(plan_file), Objective())


def written(perseus: Program, plan_file: Path, ending: str) -> Path:
    path = plan_file.with_name(f"graph{ending}")
    answer = perseus("show", plan_file, "--graph", path)
    assert answer.code == 0
    assert "12 instructions" in answer.err
    return path


def test_each_instruction_has_clock_and_place(perseus: Program, plan_file: Path, plan: FrequencyPlan) -> None:
    import networkx as nx

    content = json.loads(written(perseus, plan_file, ".json").read_text())
    graph = nx.node_link_graph(content, edges="edges")
    assert set(graph) == {str(i) for i in plan.of.computations()}
    ends_s = [node["start_s"] + node["duration_s"] for _, node in graph.nodes(data=True)]
    assert max(ends_s) == pytest.approx(plan.iteration_time_s)
    for stage in range(2):
        clocks = [clock for name in map(str, plan.of.computations()) if name[0] == str(stage)
                  for clock in graph.nodes[name]["clocks_mhz"].split("-")]  # fmt: skip
        assert list(map(int, clocks)) == clocks_of_stage(plan, stage)


def test_slack_is_what_the_longest_path_through_leaves(perseus: Program, plan_file: Path) -> None:
    import networkx as nx

    graph = nx.read_graphml(written(perseus, plan_file, ".graphml"))
    first, last = (
        [name for name, degree in degrees if not degree] for degrees in (graph.in_degree, graph.out_degree)
    )
    paths = [path for a in first for b in last for path in nx.all_simple_paths(graph, a, b)]
    lasts_s = {name: node["duration_s"] for name, node in graph.nodes(data=True)}
    length_s = [sum(map(lasts_s.__getitem__, path)) for path in paths]
    for name, node in graph.nodes(data=True):
        through_s = max(whole_s for path, whole_s in zip(paths, length_s, strict=True) if name in path)
        assert node["slack_s"] == pytest.approx(max(length_s) - through_s, abs=1e-9)
        assert node["critical"] == (node["slack_s"] == 0.0)
    longest = max(zip(length_s, paths, strict=True))[1]
    assert all(graph.nodes[name]["critical"] for name in longest)
    assert not all(node["critical"] for _, node in graph.nodes(data=True))


def test_dot_draws_every_node_and_edge(perseus: Program, plan_file: Path, plan: FrequencyPlan) -> None:
    text = written(perseus, plan_file, ".dot").read_text()
    assert text.startswith("digraph")
    assert re.search(r'"0F0" \[label="0F0\\n[0-9-]+ MHz", color="(red|black)", stage="0"', text)
    drawn = [line.partition("[")[0].strip() for line in text.splitlines()[2:-1]]
    assert {name for name in drawn if "->" not in name} == {f'"{i}"' for i in plan.of.computations()}
    assert ['"0F0"', '"1F0"'] in [name.split(" -> ") for name in drawn]


@pytest.mark.parametrize(("name", "said"), [("plan.svg", ".graphml"), ("taken.dot", "directory")])
def test_what_cannot_be_written_is_one_line(refused: Refused, plan_file: Path, name: str, said: str) -> None:
    plan_file.with_name("taken.dot").mkdir()
    path = plan_file.parent / name
    line = refused("show", plan_file, "--graph", path)
    assert line.startswith(str(path))
    assert said in line
