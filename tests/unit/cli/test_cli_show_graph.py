"""``perseus-ds show --graph``: a plan as other tools read it, its slack held against every path there is."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.config import Objective
from perseus_ds.plan import FrequencyPlan, read_plans, select


@pytest.fixture
def plan(plan_file: Path) -> FrequencyPlan:
    return select(read_plans(plan_file), Objective())


def written(perseus: Program, plan_file: Path, ending: str) -> Path:
    path = plan_file.with_name(f"graph{ending}")
    answer = perseus("show", plan_file, "--graph", path)
    assert answer.code == 0
    assert "12 instructions" in answer.err
    return path


def test_every_instruction_has_its_clock_and_place(
    perseus: Program, plan_file: Path, plan: FrequencyPlan
) -> None:
    import networkx as nx

    content = json.loads(written(perseus, plan_file, ".json").read_text())
    graph = nx.node_link_graph(content, edges="edges")
    assert set(graph) == {str(i) for i in plan.of.computations()}
    ends_s = [node["start_s"] + node["duration_s"] for _, node in graph.nodes(data=True)]
    assert max(ends_s) == pytest.approx(plan.iteration_time_s)
    for stage in range(2):
        clocks = [clock for name in map(str, plan.of.computations()) if name[0] == str(stage)
                  for clock in graph.nodes[name]["clocks_mhz"].split("-")]  # fmt: skip
        assert list(map(int, clocks)) == plan.clocks_of_stage(stage)


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


def test_dot_draws_every_instruction_and_precedence(
    perseus: Program, plan_file: Path, plan: FrequencyPlan
) -> None:
    text = written(perseus, plan_file, ".dot").read_text()
    assert text.startswith("digraph")
    assert re.search(r'"0F0" \[label="0F0\\n[0-9-]+ MHz", color="(red|black)", stage="0"', text)
    drawn = [line.partition("[")[0].strip() for line in text.splitlines()[2:-1]]
    assert {name for name in drawn if "->" not in name} == {f'"{i}"' for i in plan.of.computations()}
    assert ['"0F0"', '"1F0"'] in [name.split(" -> ") for name in drawn]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plan.svg", ".graphml"),
        ("taken.dot", "directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(
    refused: Callable[..., str], plan_file: Path, name: str, said: str
) -> None:
    plan_file.with_name("taken.dot").mkdir()
    path = plan_file.parent / name
    line = refused("show", plan_file, "--graph", path)
    assert line.startswith(str(path))
    assert said in line
