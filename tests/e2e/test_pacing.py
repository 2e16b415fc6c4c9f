"""Two replicas with microbatches of log-normal lengths, paced to the longer: DeepSpeed and megatron-core."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jobs import SURE, UNEVEN, block, by_lengths, lengths_of, lines
from ranks import Said, batches, build, config, run_ranks

import perseus_ds
from perseus_ds.profile import read_profile
from perseus_ds.runtime import user_loads
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

STAGES, REPLICAS, STEPS = 2, 2, 260


@dataclass(frozen=True)
class Jobs:
    """The same job paced by loads and not, from one profile and plan."""

    run_dir: Path
    paced: list[Said]
    free: list[Said]

    def summary(self, pacing: str) -> dict[str, Any]:
        return json.loads((self.run_dir / f"{pacing}_summary.json").read_text())

    def saves_more_and_takes_no_longer(self, *, more_pct: float) -> None:
        """Without pacing all is as expected, within the errors of both figures."""
        paced, free = self.summary("automatic"), self.summary("never")
        assert paced["facts"]["answers"]["paced_iterations"] >= 20
        written = (self.run_dir / "automatic_events.jsonl").read_text()
        seen = {json.loads(line)["event"] for line in written.splitlines()}
        assert not seen & {"straggler", "disabled", "alone", "contradicted", "slower", "paced_no_more"}
        facts = free["facts"]
        expected = {"saving": free["predicted_saving_pct"], "slowdown": facts["predicted_slowdown_pct"]}
        for name, expected_pct in expected.items():
            within_pct = SURE * free[f"{name}_se_pct"] + facts[f"predicted_{name}_within_pct"]
            assert abs(free[f"{name}_pct"] - expected_pct) <= within_pct
        assert paced["saving_pct"] > free["saving_pct"] + more_pct
        within_pct = SURE * math.hypot(paced["slowdown_se_pct"], free["slowdown_se_pct"])
        assert paced["slowdown_pct"] <= free["slowdown_pct"] + 0.2 + within_pct


def both_ways(run_dir: Path, train: Callable[..., object], **straggler: str) -> Jobs:
    said = []
    for pacing in ("automatic", "never"):
        perseus = block(
            run_dir,
            simulated=by_lengths(microbatches=4, replicas=REPLICAS),
            straggler={"pacing": pacing, **straggler},
            profile={"min_window_s": 10.0, "max_clocks": 3, "warmup_iterations": 2},
            audit={"every_iterations": 12, "iterations": 12, "settle_s": 0.0},
        )
        said.append(run_ranks(STAGES * REPLICAS, train, config(perseus=perseus)))
        for file in ("summary.json", "events.jsonl"):
            (run_dir / file).rename(run_dir / f"{pacing}_{file}")
    return Jobs(run_dir, *said)


def by_deepspeed(rank: int, content: Mapping[str, Any]) -> list[str]:
    engine, data = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches()
    user_loads.LIMIT_S = 60.0  # other work may hold this host up
    perseus_ds.set_load(partial(lengths_of, engine.grid.get_data_parallel_rank()))
    return [float(engine.train_batch(data)).hex() for _ in range(STEPS)]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return both_ways(tmp_path_factory.mktemp("paced"), by_deepspeed)


def test_the_profile_finds_what_loads_cost_on_every_stage(jobs: Jobs) -> None:
    """Stages after the first see no lengths and are fitted on those that the first one counts."""
    profile = read_profile(jobs.run_dir / "profile.json")
    for stage in range(STAGES):
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            fit = profile.loads[stage, kind]
            assert fit.r2 > 0.99
            assert fit.scatter < 0.02
            assert [fit.base, fit.tokens, fit.squares] == pytest.approx([0.1, 0.7, 0.2], abs=0.1)


def test_the_job_saves_more_takes_no_longer_and_loses_the_same(jobs: Jobs) -> None:
    assert [one.value for one in jobs.paced] == [one.value for one in jobs.free]
    assert not any("straggler" in line for line in lines(jobs.paced[0]))
    answers = jobs.summary("automatic")["facts"]["answers"]
    assert answers["mean_slowed_pct"] >= 2.0
    assert answers["cost_pct"] <= 0.2
    jobs.saves_more_and_takes_no_longer(more_pct=4.0)


def by_megatron(rank: int, content: Mapping[str, Any]) -> tuple[list[list[str]], str]:
    from megatron_jobs import Job, Shape

    job = Job(Shape(STAGES, data=REPLICAS, packed=True, settings={"variable_seq_lengths": True}))
    if "perseus" in content:
        perseus_ds.attach(job.schedules, config=content["perseus"])
    job.run_pass = job.schedules.get_forward_backward_func()
    return [job.step() for _ in range(STEPS)], job.weights()


def test_packed_sequences_are_counted_from_the_batches_and_paced(tmp_path: Path) -> None:
    """Megatron's own schedule passes on what it reads."""
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    jobs = both_ways(tmp_path, by_megatron, loads="read_ahead")
    plain = [one.value for one in run_ranks(STAGES * REPLICAS, by_megatron, config())]
    assert [one.value for one in jobs.paced] == plain
    assert [one.value for one in jobs.free] == plain
    for fit in read_profile(jobs.run_dir / "profile.json").loads.values():
        assert fit.r2 > 0.99
        assert fit.squares > 0.0
    jobs.saves_more_and_takes_no_longer(more_pct=1.0)
