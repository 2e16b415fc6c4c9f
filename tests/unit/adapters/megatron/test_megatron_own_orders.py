from __future__ import annotations

from types import SimpleNamespace

import pytest

from perseus_ds.adapters.megatron import check_table, left_out_of, order_of
from perseus_ds.errors import EngineError
from perseus_ds.schedule import Order


def text(order: Order) -> str:
    return " ".join(map(str, order))


def test_one_f_one_b_reduces_and_steps_at_its_end() -> None:
    assert text(order_of(0, ranks=2, microbatches=3, reduces=True)) == "0F0 0F1 0B0 0F2 0B1 0B2 0AR0 0OS0"
    assert text(order_of(1, ranks=2, microbatches=2, reduces=False)) == "1F0 1B0 1F1 1B1 1OS0"


def test_no_pipeline_is_a_chain() -> None:
    assert text(order_of(0, ranks=1, microbatches=2, reduces=True)) == "0F0 0B0 0F1 0B1 0AR0 0OS0"


INTERLEAVED = order_of(1, ranks=2, microbatches=2, chunks=2, group=2, reduces=True)
TABLE = [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_chunk_c_of_a_rank_is_model_stage_c_times_ranks_plus_rank() -> None:
    assert text(INTERLEAVED) == "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1 1AR0 1OS0"
    check_table(TABLE, INTERLEAVED, ranks=2, chunks=2)


@pytest.mark.parametrize("table", [TABLE[:-1], TABLE[::-1], []])
def test_another_table_is_refused(table: list[tuple[int, int]]) -> None:
    with pytest.raises(EngineError, match="interleaved"):
        check_table(table, INTERLEAVED, ranks=2, chunks=2)


@pytest.mark.parametrize(
    ("overlaps", "left_out"),
    [
        ({}, ""),
        ({"overlap_param_gather": True}, "1F0 3F0"),
        ({"overlap_grad_reduce": True}, "1B1 3B1"),
        ({"overlap_param_gather": True, "overlap_grad_reduce": True}, "1B1 1F0 3B1 3F0"),
    ],
)
def test_what_contains_a_wait_for_replicas_is_left_out(overlaps: dict[str, bool], left_out: str) -> None:
    module = SimpleNamespace(ddp_config=SimpleNamespace(**overlaps))
    assert " ".join(sorted(map(str, left_out_of(INTERLEAVED, [module])))) == left_out
