"""Edge sets of the graph against those of the definitions: a count or a makespan can agree by chance."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from perseus_ds.schedule import TEXTBOOK, Dag, Kind, Schedule, dag_of, textbook, validate

# The edges of an iteration written down from definitions, without the product's graph.
#
# Works on text alone: every order is a list of words like ``2F0``. A word follows the one before it in its
# order; forwards pass the model downwards, gradients upwards, weight gradients come after input gradients.


def edges_by_definition(orders: list[list[str]]) -> set[tuple[str, str]]:
    runs = {part: word for order in orders for word in order for part in word.split("+")}
    words = list(runs)
    last = max(stage for stage, _, _ in map(split, words))
    found: set[tuple[str, str]] = set()
    gradient = {
        (stage, microbatch): f"{stage}{letter}{microbatch}"
        for stage, letter, microbatch in map(split, words)
        if letter in "BI"
    }
    for (stage, microbatch), word in gradient.items():
        found.add(
            (f"{stage}F{microbatch}", word) if stage == last else (gradient[stage + 1, microbatch], word)
        )
        if word == f"{stage}I{microbatch}":
            found.add((word, f"{stage}W{microbatch}"))
        if stage < last:
            found.add((f"{stage}F{microbatch}", f"{stage + 1}F{microbatch}"))
    in_order = {pair for order in orders for pair in pairwise(order)}
    return in_order | {(runs[giver], runs[taker]) for giver, taker in found}


def split(word: str) -> tuple[int, str, int]:
    match = re.fullmatch(r"(\d+)([A-Z])(\d+)", word)
    assert match, word
    return int(match[1]), match[2], int(match[3])


RANKS = [2, 3, 4, *(pytest.param(ranks, marks=pytest.mark.thorough) for ranks in range(5, 9))]


def words(schedule: Schedule) -> list[list[str]]:
    return [[str(instruction) for instruction in order] for order in schedule.orders]


def named(dag: Dag) -> list[tuple[str, str]]:
    return [(str(dag.nodes[a]), str(dag.nodes[b])) for a, b in dag.edges]


def agree(schedule: Schedule) -> int:
    validate(schedule)
    found, wanted = named(dag_of(schedule)), edges_by_definition(words(schedule))
    assert len(found) == len(set(found))
    assert set(found) == wanted
    return len(wanted)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "gpipe-fifo", "zb-h1"])
@pytest.mark.parametrize("ranks", RANKS)
def test_one_stage_on_every_rank(name: str, ranks: int) -> None:
    for microbatches in range(1, 2 * ranks + 3):
        agree(textbook(name, stages=ranks, microbatches=microbatches))


@pytest.mark.parametrize("name", ["interleaved", "interleaved-zb", "interleaved-fb", "looped-bfs"])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
@pytest.mark.parametrize("ranks", RANKS)
def test_several_stages_on_every_rank(name: str, chunks: int, ranks: int) -> None:
    for microbatches in (ranks, 2 * ranks, 3 * ranks):
        agree(textbook(name, stages=ranks * chunks, microbatches=microbatches, chunks=chunks))


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("ranks", RANKS)
def test_interleaved_in_larger_groups(chunks: int, ranks: int) -> None:
    for group in (ranks + 1, 2 * ranks):
        for microbatches in (2 * group, 3 * group):
            agree(
                textbook(
                    "interleaved",
                    stages=ranks * chunks,
                    microbatches=microbatches,
                    chunks=chunks,
                    group=group,
                )
            )


@pytest.mark.parametrize("name", ["zbv", "dualpipe-v", "dualpipe-v-whole"])
@pytest.mark.parametrize("ranks", RANKS)
def test_two_arms_of_a_v(name: str, ranks: int) -> None:
    for microbatches in (2 * ranks, 2 * ranks + 1, 3 * ranks + 2):
        agree(textbook(name, stages=2 * ranks, microbatches=microbatches))


def test_every_order_is_compared() -> None:
    one, several = {"1f1b", "gpipe", "gpipe-fifo", "zb-h1"}, {"interleaved", "interleaved-zb", "looped-bfs"}
    assert one | several | {"interleaved-fb", "zbv", "dualpipe-v", "dualpipe-v-whole"} == set(TEXTBOOK)


def test_what_crosses_ranks_is_buffered_and_named_after_its_send() -> None:
    dag = dag_of(textbook("zbv", stages=4, microbatches=4))
    buffered = {
        (str(dag.nodes[a]), str(dag.nodes[b])): (stage, kind)
        for (a, b), (stage, kind) in dag.buffered.items()
    }
    assert buffered["0F0", "1F0"] == (0, Kind.SEND_ACTIVATION)
    assert buffered["3I1", "2I1"] == (3, Kind.SEND_GRAD)
    assert ("1F0", "2F0") not in buffered  # stages 1 and 2 are both on rank 1: the point of the V
    assert len(buffered) == 4 * 4  # 0 to 1 and 2 to 3, forwards and gradients, for 4 microbatches


def test_a_buffered_transfer_delays_its_taker_and_nothing_else() -> None:
    dag = dag_of(textbook("1f1b", stages=2, microbatches=2))
    starts = dag.earliest_starts([1.0] * len(dag.nodes), {(0, Kind.SEND_ACTIVATION): 0.25})
    at = {str(node): start for node, start in zip(dag.nodes, starts, strict=True)}
    assert at == {
        "0F0": 0.0,
        "0F1": 1.0,
        "0B0": 3.25,
        "0B1": 5.25,
        "1F0": 1.25,
        "1B0": 2.25,
        "1F1": 3.25,
        "1B1": 4.25,
    }
