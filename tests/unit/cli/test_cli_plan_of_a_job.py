"""``perseus-ds plan RUN_DIR/profile.json``: the job's own plan, unless flags say otherwise."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program
from textbook_gpu import textbook_profile

from perseus_ds.plan import PlanRequest, PlanSet, build, read_plans, write_request
from perseus_ds.profile import Profile, write_profile
from perseus_ds.schedule import textbook

OF_BOTH = {"gpu": "A100", "stages": "2"}
FINGERPRINT = {
    **OF_BOTH,
    "microbatches": "3",
    "schedule": "gpipe 0a1b",
    "reserve_pct": "1.5",
    "clock_changes": "split auto, waits never",
}
SCHEDULE = textbook("gpipe", stages=2, microbatches=3)
REQUEST = PlanRequest(
    SCHEDULE, fingerprint=FINGERPRINT, blocking_power_w=61.5, reserve_pct=1.5, split="automatic"
)


def measured(gpu: str = "A100") -> Profile:
    own = textbook_profile([1.0, 1.2])
    few = {key: points[::8] for key, points in own.points.items()}
    return Profile(few, blocking_power_w=61.5, fingerprint={**OF_BOTH, "gpu": gpu})


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_profile(measured(), tmp_path / "profile.json")
    write_request(tmp_path / "plan_request.json", REQUEST)
    return tmp_path


def same(one: PlanSet, other: PlanSet) -> bool:
    """All but how long solving took."""
    return (
        one.iteration_time_s.tolist() == other.iteration_time_s.tolist()
        and one.effective_energy_j.tolist() == other.effective_energy_j.tolist()
        and one.choice.tolist() == other.choice.tolist()
        and (one.baseline, one.schedule) == (other.baseline, other.schedule)
        and (one.fingerprint, one.reserve_pct) == (other.fingerprint, other.reserve_pct)
    )


@pytest.mark.thorough
def test_without_flags_it_is_the_jobs_plan(run_dir: Path, perseus: Program) -> None:
    answer = perseus("plan", run_dir / "profile.json", "-o", run_dir / "plan.json")
    assert answer.code == 0
    assert "12 instructions" in answer.err
    assert "reserve_pct 1.5" in answer.err
    jobs = run_dir / "jobs.json"
    words = [str(run_dir / name) for name in ("profile.json", "plan_request.json", "jobs.json")]
    from perseus_ds.plan.__main__ import main as plan_beside_the_training  # the job's planner

    assert plan_beside_the_training(words) == 0
    assert same(read_plans(run_dir / "plan.json"), read_plans(jobs))


FLAGS: list[tuple[tuple[object, ...], str, dict[str, str]]] = [
    (("--set", "reserve_pct=3"), "reserve_pct 3", {"reserve_pct": "3"}),
    (("--set", "reserve_pct=automatic"), "reserve_pct automatic", {"reserve_pct": "auto"}),
    (
        ("--set", "split=never"),
        "split never",
        {"clock_changes": "split never, waits never"},
    ),
    (("--blocking-power-w", 70), "blocking_power_w 70", {}),
    (("--set", "switch_latency_ms=2"), "takes 2", {}),
]


@pytest.mark.parametrize(
    ("words", "told", "changed"),
    [pytest.param(*one, marks=[pytest.mark.thorough] * ("--split" not in one[0])) for one in FLAGS],
)
def test_what_flags_change_is_told_in_one_line(
    run_dir: Path, perseus: Program, words: tuple[object, ...], told: str, changed: dict[str, str]
) -> None:
    answer = perseus("plan", run_dir / "profile.json", *words, "-o", run_dir / "plan.json")
    assert told in answer.err.splitlines()[0]
    assert read_plans(run_dir / "plan.json").fingerprint == {**FINGERPRINT, **changed}


@pytest.mark.thorough
def test_another_schedule_is_no_plan_for_the_job(run_dir: Path, perseus: Program) -> None:
    answer = perseus("plan", run_dir / "profile.json", "--microbatches", 5, "-o", run_dir / "plan.json")
    assert "20 instructions" in answer.err
    assert "12 instructions" in answer.err
    plans = read_plans(run_dir / "plan.json")
    assert plans.fingerprint == OF_BOTH
    expected = build(
        measured(), textbook("gpipe", stages=2, microbatches=5), blocking_power_w=61.5, reserve_pct=1.5
    )
    assert plans.baseline == expected.baseline


def test_a_request_of_another_job_is_not_used(
    run_dir: Path, perseus: Program, refused: Callable[..., str]
) -> None:
    write_profile(measured(gpu="H100"), run_dir / "profile.json")
    answer = perseus("plan", run_dir / "profile.json", "--stages", 2, "--microbatches", 3)
    assert "plan_request.json" in answer.err
    (run_dir / "plan_request.json").unlink()
    said = refused("plan", run_dir / "profile.json")
    assert said.endswith("--microbatches)")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"orders": 3}', '{"orders":["0F0"],"microbatches":NaN}'])
def test_a_broken_request_is_refused_in_one_line(
    run_dir: Path, refused: Callable[..., str], text: str
) -> None:
    (run_dir / "plan_request.json").write_text(text)
    assert refused("plan", run_dir / "profile.json").startswith(str(run_dir / "plan_request.json"))
