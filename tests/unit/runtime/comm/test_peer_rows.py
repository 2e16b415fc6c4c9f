"""Two numbers of every group in the vector of the greatest: who is the latest, and the next one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perseus_ds.runtime.comm.peer_rows import PeerRows
from perseus_ds.straggler.peers import Claims

LATE = {0: 0.001, 1: 0.05, 2: 0.003, 3: 0.02, 4: None, 5: 0.0}
GROUP = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: None}


def exchanged(suspects: dict[int, int | None]) -> Claims:
    rows = [PeerRows(groups=2, group=GROUP[rank], rank=rank) for rank in LATE]
    vectors = []
    for (rank, late), row in zip(LATE.items(), rows, strict=True):
        row.suspect = suspects.get
        vectors.append(np.full(len(row), np.nan))
        row.write(vectors[rank], late)
    return rows[0].claims(np.max(vectors, axis=0))


def test_the_latest_of_every_group_comes_out_with_its_rank() -> None:
    found = exchanged({})
    assert found.rank.tolist() == [1, 3]
    assert found.late == pytest.approx([0.05, 0.02], abs=1e-6)


def test_who_is_suspected_stands_aside_for_the_next_one() -> None:
    assert exchanged({0: 1, 1: 3}).next_late.tolist() == pytest.approx([0.003, -math.inf])
    assert exchanged({0: 0, 1: 3}).next_late[0] == pytest.approx(0.05)


def test_silence_is_no_claim_of_rank_0() -> None:
    row = PeerRows(groups=1, group=0, rank=0)
    numbers = np.zeros(len(row))
    row.write(numbers, None)
    assert row.claims(numbers).late.tolist() == [-math.inf]


def test_ranks_of_the_largest_jobs_come_through_whole() -> None:
    row = PeerRows(groups=1, group=0, rank=2**20 - 1)
    numbers = np.zeros(len(row))
    row.write(numbers, 1e9)
    assert row.claims(numbers).rank.tolist() == [2**20 - 1]
