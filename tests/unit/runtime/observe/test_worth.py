"""Joules by token and by sample: by hand."""

from __future__ import annotations

from collections import deque

from perseus_ds.run_directory.records import MeasuredSide, Summary
from perseus_ds.runtime.accounting import Mode, Outside, RankReport, Sample, Total
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.summaries import worth
from perseus_ds.schedule import textbook

SUMMARY = Summary(MeasuredSide(1.0, 7200.0, 40), MeasuredSide(1.0, 3600.0, 40), True, 50.0)


def job(**traits: str) -> Job:
    schedule = textbook("1f1b", stages=2, microbatches=4)
    fingerprint = {"replicas": "3", **traits}
    return Job(0, 6, 0, 0, schedule, fingerprint, sets=((0,), (1,), (2,)))


def report(rank: int, *, size: float) -> RankReport:
    samples = deque([Sample(0, 1, 1.0, 1.0, size), Sample(1, 1, 1.0, 1.0, 3 * size)])
    totals = dict.fromkeys((Mode.BASELINE, Mode.PERSEUS), Total(2, samples))
    return RankReport(rank, rank % 2, rank // 2, totals, Outside(), {})


def test_each_replicas_first_rank_counts_its_tokens_once() -> None:
    reports = [report(rank, size=100.0) for rank in range(6)]
    found = worth(SUMMARY, reports, job(micro_batch_size="5"))
    assert found == {
        "worth": {
            "baseline": {"energy_per_token_j": 12.0, "energy_per_sample_j": 120.0},
            "perseus": {"energy_per_token_j": 6.0, "energy_per_sample_j": 60.0},
        }
    }


def test_what_nobody_counts_is_left_out() -> None:
    reports = [report(rank, size=0.0) for rank in range(6)]
    assert worth(SUMMARY, reports, job(microbatch="? x 4096")) == {}
