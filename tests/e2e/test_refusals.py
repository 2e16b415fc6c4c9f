"""Jobs that cannot be served, or not any more: one clear line, and training as if nobody had asked."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import deepspeed
import pytest
from adapter_contract import Noting
from deepspeed.runtime.pipe import schedule as pipe
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed_hosts import AllForwardsFirst, OwnEngine, one_f_one_b
from jobs import MICROBATCHES, STAGES, UNEVEN, Lifecycle, block, copy_of, lines, names, plain_losses
from pipelines import Pipeline
from ranks import Said, batches, build, config, losses, run_ranks
from torch.distributed.pipelining import schedules

import perseus_ds
from perseus_ds.adapters.deepspeed_settings import crashes_with_timers
from perseus_ds.adapters.megatron import PASSES
from perseus_ds.errors import PerseusError
from perseus_ds.runtime import user_loads

pytestmark = pytest.mark.e2e

OFF = "perseus: off, training goes on at default clocks: "
Perseus = Mapping[str, Any] | None
Cases = Mapping[str, tuple[Any, ...]]
"""Blocks that cannot be served, each with all that its refusal must name."""


@pytest.fixture(scope="module")
def cases(lifecycle: Lifecycle, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Every refusal, each with a run directory of its own where it needs one."""
    root = tmp_path_factory.mktemp("refused")
    plain = block(root / "none")
    earlier, cut_short = (copy_of(lifecycle.run_dir, root / name) for name in ("earlier", "cut"))
    text = (cut_short / "plan.json").read_text()
    (cut_short / "plan.json").write_text(text[: len(text) // 2])
    (root / "file").write_text("")
    on_others = block(earlier, mode="run", simulated={"gpu": "h100-sxm"})
    return {
        "unknown key": (plain | {"modus": "automatic"}, "perseus.modus"),
        "run without a plan": (plain | {"mode": "run"}, "perseus.mode", "plan.json"),
        "plan for 4": (block(earlier, mode="run"), "plan.json", "batches of 4 microbatches", "have 6"),
        "plan for another GPU": (on_others, "plan.json", "gpu is", "A100", "H100"),
        "plan cut short": (block(cut_short, mode="run"), "plan.json"),
        "unknown GPU": (plain | {"simulated": {"gpu": "a101"}}, "a101"),
        "too short": (plain | {"simulated": {"forward_s": [0.1] * 3}}, "forward_s", "3 entries", "4 stages"),
        "a file": (plain | {"run_dir": str(root / "file")}, "perseus.run_dir", "is not a folder"),
        "timelines": (plain | {"objective": {"timelines": str(root / "nowhere")}}, "nowhere", "No such file"),
    }


def microbatches(name: str) -> int:
    return 6 if name == "plan for 4" else MICROBATCHES


def go_through(rank: int, cases: Cases) -> dict[str, tuple[list[str], bool]]:
    seen = {}
    for name, (perseus, *_) in cases.items():
        print(f"== {name}\n", flush=True)  # noqa: T201
        content = config(microbatches(name), gradient_clipping=1.0, perseus=perseus)
        engine = build(content, stages=STAGES, inner=UNEVEN)
        seen[name] = losses(engine, 2), "_exec_schedule" in vars(engine)
    return seen


def test_one_line_names_what_is_wrong_and_training_goes_on_untouched(cases: Cases) -> None:
    said = run_ranks(4, go_through, cases)
    parts = dict(part.split("\n", 1) for part in said[0].output.split("== ")[1:])
    for name, (_, *named) in cases.items():
        (line,) = [line for line in parts[name].splitlines() if line.startswith("perseus: ")]
        assert "off, training" in line
        assert [word for word in named if word not in line] == [], line
        assert "unexpected" not in line
        plain = plain_losses(2, microbatches=microbatches(name))
        assert [one.value[name] for one in said] == [(losses, False) for losses in plain], name
    assert not any("perseus: " in one.output for one in said[1:]), "other ranks are silent"


# Jobs of DeepSpeed that we recognise and stay away from, or say something about.


def test_autotuning_switches_us_off(tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path / "run"), autotuning={"enabled": True})
    # built alone: autotuning turns on the timers that crash it
    said = run_ranks(2, lambda _: "_exec_schedule" in vars(build(content, stages=2)))
    assert [one.value for one in said] == [False, False]
    [line] = lines(said[0])
    assert "autotuning" in line
    assert not (tmp_path / "run").exists()


def timed(rank: int, perseus: Perseus) -> str:
    try:
        losses(build(config(perseus=perseus, wall_clock_breakdown=True), stages=2), 1)
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_deepspeeds_timers_crash_the_job_without_us() -> None:
    """The reason for our line. When this fails DeepSpeed is mended: change `crashes_with_timers`."""
    assert crashes_with_timers(deepspeed.__version__)
    assert any("already been" in one.value for one in run_ranks(2, timed, None))


def test_the_user_is_told_beforehand(tmp_path: Path) -> None:
    said = run_ranks(2, timed, block(tmp_path))
    assert "wall_clock_breakdown" in lines(said[0])[0]
    assert "both off" in lines(said[0])[0]


# One rank cannot be served: all are off at once, with its reason.

STEPS, REFUSING = 3, 1


def with_a_file_beside_the_block(rank: int, perseus: Perseus) -> list[Any]:
    """A file named by a single node's environment, beside the job's own block."""
    if rank == REFUSING and perseus is not None:
        os.environ["PERSEUS_CONFIG"] = "elsewhere.json"
    return losses(build(config(4, perseus=perseus), stages=2), STEPS)


def without_a_name(rank: int, perseus: Perseus) -> list[Any]:
    """Its engine, of another release, lacks a name that is needed from the beginning on."""
    engine = one_f_one_b(2)
    if rank == REFUSING:
        del engine.micro_batch_size
    if perseus is not None:
        perseus_ds.attach(engine, config=perseus)
    return losses(engine, STEPS)


def megatron_heard_by_another(rank: int, perseus: Perseus) -> list[Any]:
    """All is agreed on and every device open when one rank finds hooks of ours on its model."""
    from megatron_jobs import Job, Shape, adapter_of

    job = Job(Shape(2))
    before = [getattr(job.schedules, name) for name in PASSES]
    if perseus is not None:
        perseus_ds.attach(job.schedules, config=perseus)
        if rank == REFUSING:
            adapter_of(job).install(Noting())
    job.run_pass = job.schedules.get_forward_backward_func()
    trained = [job.step() for _ in range(STEPS)]
    assert rank == REFUSING or [getattr(job.schedules, name) for name in PASSES] == before
    return trained


def pipelining(rank: int, perseus: Perseus) -> list[Any]:
    pipeline = Pipeline("ZBV", 4)
    if rank == REFUSING:
        pipeline.schedule.register_custom_function(schedules.UNSHARD, lambda action, context: None)
    if perseus is not None:
        perseus_ds.attach(pipeline.schedule, config=perseus)
    return [pipeline.train() for _ in range(STEPS)]


Job = Callable[[int, Perseus], Any]
REASONS: dict[Job, str] = {
    with_a_file_beside_the_block: (
        "the configuration has a perseus block, and PERSEUS_CONFIG=elsewhere.json names another"
    ),
    without_a_name: "PipelineEngine.micro_batch_size, used for recognising the job",
    megatron_heard_by_another: "perseus_ds is installed on this model already",
    pipelining: "custom functions are registered for UNSHARD",
}


def as_without_us(job: Job, perseus: Perseus, **variables: str) -> list[Said]:
    """Train a job with our block and without, and return what its ranks said with it."""
    said = run_ranks(2, job, perseus, environment=variables)
    assert [one.value for one in said] == [one.value for one in run_ranks(2, job, None)]
    return said


@pytest.mark.parametrize("job", REASONS, ids=lambda job: job.__name__)
def test_all_ranks_are_off_at_once_with_its_reason(tmp_path: Path, job: Job) -> None:
    if job is megatron_heard_by_another:
        pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    said = as_without_us(job, block(tmp_path, mode="observe"))
    (line,) = [line for one in said for line in lines(one) if line.startswith(OFF)]
    assert f": rank {REFUSING}: " in line
    assert REASONS[job] in line


def test_where_we_are_switched_off_nobody_minds(tmp_path: Path) -> None:
    asked = block(tmp_path / "run", mode="observe", on_error="raise")
    said = as_without_us(pipelining, asked, PERSEUS_MODE="off")
    assert [lines(one) for one in said] == [[], []]
    assert not (tmp_path / "run").exists()


def refused(rank: int, perseus: dict[str, Any]) -> str:
    with pytest.raises(PerseusError) as raised:
        pipelining(rank, perseus)
    return str(raised.value)


def test_on_error_raise_ends_every_rank_with_its_reason(tmp_path: Path) -> None:
    said = run_ranks(2, refused, block(tmp_path, mode="observe", on_error="raise"))
    (answer,) = {one.value for one in said}
    assert f"rank {REFUSING}: " in answer


# Schedules that never end or change between batches, replicas that disagree, loads that fail: all come later.

FROM = 5


class Endless(AllForwardsFirst):
    """Goes on for ever with nothing."""

    def steps(self) -> Iterator[list[object]]:
        yield from super().steps()
        while True:
            yield []


class StoppingEngine(OwnEngine):
    """Runs an endless schedule as far as the step."""

    def _train_schedule(self) -> Endless:
        return Endless(engine=self)

    def _exec_schedule(self, pipe_schedule: object) -> None:
        super()._exec_schedule(AllForwardsFirst(engine=self))


class OneByOne(AllForwardsFirst):
    """A schedule of each microbatch there and back; otherwise the same as all forwards first."""

    def steps(self) -> Iterator[list[object]]:
        for number in range(self.micro_batches):
            yield [pipe.LoadMicroBatch(number), pipe.ForwardPass(number), pipe.BackwardPass(number)]
        yield [pipe.ReduceTiedGrads(), pipe.ReduceGrads(), pipe.OptimizerStep()]


class ChangingEngine(OwnEngine):
    """Runs another order from some step on."""

    def _train_schedule(self) -> AllForwardsFirst:
        return (OneByOne if self.global_steps >= FROM else AllForwardsFirst)(engine=self)


def endless(engine: PipelineEngine, rank: int) -> None:
    engine.__class__ = StoppingEngine


def changing(engine: PipelineEngine, rank: int) -> None:
    engine.__class__ = ChangingEngine


def apart_later(engine: PipelineEngine, rank: int) -> None:
    if engine.global_steps >= FROM:
        engine.micro_batches = 4 + 2 * rank


@pytest.mark.parametrize(
    ("change", "named"),
    [(endless, "Endless"), (changing, "rank ran"), (apart_later, "6 microbatches")],
    ids=["never ends", "changes between batches", "replicas disagree"],
)
def test_one_line_and_training_goes_on(
    tmp_path: Path, change: Callable[[PipelineEngine, int], None], named: str
) -> None:
    def trained(rank: int, perseus: Perseus) -> list[str]:
        engine, data, seen = build(config(4, perseus=perseus), stages=1), batches(rank), []
        for _ in range(13):
            change(engine, rank)
            seen.append(float(engine.train_batch(data)).hex())
        assert "_exec_schedule" not in vars(engine)
        return seen

    served = as_without_us(trained, block(tmp_path))
    told = [line for one in served for line in lines(one) if line.startswith(OFF)]
    assert [line for line in told if named not in line] == []
    assert len([line for line in lines(served[0]) if named in line]) == 1, told
    assert all(len(line) < 300 for line in told)


def with_loads(rank: int, perseus: Perseus) -> list[str]:
    """Rank 1's function of loads fails from the third iteration on."""

    def lengths(iteration: int, microbatches: int) -> object:
        return [5.0 + iteration] * microbatches if rank == 0 or iteration < 2 else {}["lengths"]

    if perseus is not None:
        user_loads.LIMIT_S = 60.0  # other work may hold this host up
        perseus_ds.set_load(lengths)
    return losses(build(config(perseus=perseus), stages=2), 8)


def test_a_function_of_loads_that_fails_on_a_rank_is_one_line_and_ends_nothing(tmp_path: Path) -> None:
    why = "the function of set_load on rank 1 raised KeyError('lengths')"
    said = as_without_us(with_loads, block(tmp_path, mode="observe"))
    assert [why in line for one in said for line in lines(one)].count(True) == 1
    assert "disabled" not in names(tmp_path)
