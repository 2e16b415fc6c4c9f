"""Loads that are wrong, or explain nothing: one line, and training as without us."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import block, lines, names
from ranks import build, config, losses, run_ranks

import perseus_ds
from perseus_ds.runtime import user_loads
from perseus_ds.runtime.user_loads import LoadFunction

pytestmark = pytest.mark.e2e


def trained(
    rank: int, content: Mapping[str, Any], steps: int, given: Mapping[int, LoadFunction]
) -> list[str]:
    if rank in given:
        user_loads.LIMIT_S = 60.0  # other work may hold this host up
        perseus_ds.set_load(given[rank])
    return losses(build(content, stages=2), steps)


def later(iteration: int, microbatches: int) -> object:
    return [5.0] * microbatches if iteration < 2 else {}["lengths"]


def good(iteration: int, microbatches: int) -> object:
    return [5.0 + iteration] * microbatches


def test_a_function_that_fails_on_a_rank_is_one_line(tmp_path: Path) -> None:
    why = "the function of set_load on rank 1 raised KeyError('lengths')"
    said = run_ranks(2, trained, config(perseus=block(tmp_path, mode="observe")), 8, {0: good, 1: later})
    assert [why in line for one in said for line in lines(one)].count(True) == 1
    assert "disabled" not in names(tmp_path)
    assert [one.value for one in said] == [one.value for one in run_ranks(2, trained, config(), 8, {})]
