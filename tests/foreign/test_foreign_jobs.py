"""Jobs of other people's frameworks and scripts: they start with our block, learn the same, and save."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import hjson
import installed
import pytest
import torch
from jobs import UNEVEN, agreed, happened
from jobs import block as block_of_jobs
from jobs import events as journal_of
from ranks import Batches, build, config, free_port, run_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "theirs"
COURSE = ("attached", "profiled", "running", "measured")
SURELY = 2.0
"""Standard errors between two measured figures, which one comparison in twenty exceeds by chance."""
ROUNDED_PCT = 0.05  # the line's error has one decimal
MOST_TIME_WITHIN_PCT = 1.5
"""Two runs per clock at 0.5 % noise tell the expected time at least that well."""


@dataclass(frozen=True)
class Done:
    """A job at its end: what it printed, each rank's losses bit by bit, its steps, our journal."""

    printed: str
    losses: list[list[str]]
    steps: int
    events: list[dict[str, Any]]

    def event(self, name: str) -> dict[str, Any]:
        """The first event of that name."""
        return next(one for one in self.events if one["event"] == name)


def needed() -> Path:
    """The folder of the foreign frameworks; a test that finds none is skipped."""
    if not installed.folder().exists():
        pytest.skip(f"{installed.REQUIREMENTS.name} is not installed: python tests/foreign/installed.py")
    return installed.folder()


def environment(folder: Path) -> dict[str, str]:
    """What a job of somebody else finds: its frameworks, and no network."""
    ours = {name for name in os.environ if name.startswith(("PERSEUS_", "FOREIGN_"))}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(needed()),
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "TORCH_EXTENSIONS_DIR": str(ROOT / ".cache" / "torch_extensions"),
    }


def block(run_dir: Path, **changes: object) -> dict[str, Any]:
    """A perseus block whose whole course takes seconds."""
    course: dict[str, object] = {
        "on_error": "raise",
        "objective": {"policy": "max_slowdown", "max_slowdown_pct": 10.0},
        "profile": {"min_window_s": 4.0, "max_clocks": 4, "warmup_iterations": 2},
        "audit": {"every_iterations": 6, "iterations": 4},
    }
    return block_of_jobs(run_dir, **(course | changes))


def torchrun(ranks: int) -> list[str]:
    """PyTorch's launcher, for so many ranks on this node."""
    words = ["--nproc_per_node", str(ranks), "--master_port", str(free_port()), "--log_dir", "logs"]
    return ["torchrun", *words]


def run(command: Sequence[str | Path], folder: Path, *, steps: int | None = None, **more: str) -> Done:
    """Run a job for so many steps, or until our saving is measured (``folder`` / "run")."""
    run_dir, out = folder / "run", folder / f"losses-{steps}"
    ends = {"FOREIGN_UNTIL": "measured"} if steps is None else {"FOREIGN_STEPS": str(steps)}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(folder) | ends | {"FOREIGN_RUN_DIR": str(run_dir), "FOREIGN_OUT": str(out)} | more,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-6000:]
    ranks = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{out.name}.*"))]
    return Done(printed, [one["losses"] for one in ranks], ranks[0]["steps"], journal_of(run_dir))


def judge(served: Done, plain: Done, *, most_slowdown_pct: float) -> None:
    """The same losses to the last bit; the whole course; figures within their stated error."""
    assert served.losses == plain.losses
    assert all(losses for losses in served.losses)
    assert "perseus: " not in plain.printed
    names = [one["event"] for one in served.events]
    course = dict.fromkeys(name for name in names if name in COURSE)  # a plan that keeps a limit may follow
    assert list(course) == list(COURSE), names
    measured = served.event("measured")
    found = re.search(r"measured: .*?\+- ([\d.]+) % energy saved.*?\+- ([\d.]+) %", measured["line"])
    assert found is not None, measured["line"]
    saving_error, time_error = (SURELY * float(error) for error in found.groups())
    expected = served.event("running")
    apart_pct = abs(measured["saving_pct"] - expected["predicted_saving_pct"])
    assert apart_pct <= saving_error + expected["predicted_saving_within_pct"] + ROUNDED_PCT, measured["line"]
    later_pct = abs(measured["slowdown_pct"] - expected["predicted_slowdown_pct"])
    time_within_pct = expected["predicted_slowdown_within_pct"]
    assert later_pct <= time_error + time_within_pct, measured["line"]
    assert time_within_pct <= MOST_TIME_WITHIN_PCT
    assert measured["saving_pct"] > 3.0
    assert measured["slowdown_pct"] <= most_slowdown_pct + time_error + time_within_pct


def saves_and_learns_the_same(
    ours: Sequence[str | Path], theirs: Sequence[str | Path], folder: Path, **environment: str
) -> Done:
    """Run a job with our block and without, judge them, and return how the first one ended."""
    served = run(ours, folder, **environment)
    judge(served, run(theirs, folder, steps=served.steps), most_slowdown_pct=10.0)
    return served


def written(path: Path, content: Mapping[str, object]) -> Path:
    """Write a configuration as JSON."""
    path.write_text(json.dumps(content))
    return path


# Hugging Face's Trainer and Accelerate.

TRAINER: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
}
ACCELERATE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}
YAML = """
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 2
main_process_port: {port}
deepspeed_config:
  deepspeed_config_file: {file}
  zero3_init_flag: false
"""


def configurations() -> dict[str, dict[str, Any]]:
    """Every configuration that we ship and every block that a page shows, within one where it is a block."""
    blocks = {str(path): hjson.loads(path.read_text()) for path in (ROOT / "configs/blocks").glob("*.json")}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for number, shown in enumerate(re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)):
            content = json.loads(f"{{{shown}}}") if shown.startswith('"') else hjson.loads(shown)
            blocks[f"{page} {number}"] = content.get("perseus", content)
    whole = {str(path): hjson.loads(path.read_text()) for path in (ROOT / "configs").glob("*.json")}
    found = {name: {"perseus": one} for name, one in blocks.items()} | whole
    return {name: {"zero_optimization": {"stage": 1}} | one for name, one in found.items()}


def refused(folder: Path, given: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What Accelerate refuses of them, and why."""
    file = written(folder / "given.json", given)
    done = subprocess.run(
        [sys.executable, JOBS / "accelerate_check.py", file],
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_accelerate_refuses_nothing_that_we_ship(tmp_path: Path) -> None:
    given = configurations()
    assert len(given) >= 8
    ended = {"zero_optimization": {"stage": 1}, "perseus": {"mode": "auto"}}
    answer = refused(tmp_path, given | {"ends the job": ended})
    assert list(answer) == ["ends the job"], answer
    assert answer["ends the job"].startswith("`perseus.mode`")


def test_a_job_of_the_trainer_saves_and_learns_the_same(tmp_path: Path) -> None:
    ours = written(tmp_path / "ours.json", TRAINER | {"perseus": block(tmp_path / "run")})
    theirs = written(tmp_path / "theirs.json", TRAINER)
    jobs = ([*torchrun(2), JOBS / "hf_trainer.py", file] for file in (ours, theirs))
    assert "2 replicas" in saves_and_learns_the_same(*jobs, tmp_path).printed


def test_a_job_of_accelerates_own_launcher_saves_and_learns_the_same(tmp_path: Path) -> None:
    ours, commands = ACCELERATE | {"perseus": block(tmp_path / "run")}, []
    for name, content in (("ours", ours), ("theirs", ACCELERATE)):
        file, yaml = written(tmp_path / f"{name}.json", content), tmp_path / f"{name}.yaml"
        yaml.write_text(YAML.format(port=free_port(), file=file))
        launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", yaml]
        commands.append([*launch, JOBS / "accelerated.py"])
    saves_and_learns_the_same(*commands, tmp_path)


# torchtitan's own trainer: pipelines of Llama debug models, sharded by FSDP2 or not.

WORDS = 2000
JOB = {
    "model.name": "llama3",
    "model.flavor": "debugmodel",
    "model.hf_assets_path": "tokenizer",
    "training.seq_len": "16",
    "training.dataset": "c4_test",
    "training.steps": "5000",
    "parallelism.pipeline_parallel_degree": "2",
    "debug.seed": "7",
    "metrics.log_freq": "1000",
}
FSDP2 = {
    "training.local_batch_size": "4",
    "parallelism.data_parallel_shard_degree": "2",
    "parallelism.pipeline_parallel_schedule": "1F1B",
}
ZBV = {"training.local_batch_size": "4", "parallelism.pipeline_parallel_schedule": "ZBVZeroBubble"}


@pytest.mark.parametrize(("job", "ranks", "replicas"), [(FSDP2, 4, 2), (ZBV, 2, 1)], ids=["fsdp2", "zbv"])
def test_torchtitan_learns_the_same(tmp_path: Path, job: dict[str, str], ranks: int, replicas: int) -> None:
    file = written(tmp_path / "block.json", block(tmp_path / "run"))
    assets(tmp_path)
    words = [f"--{key}={value}" for key, value in (JOB | job).items()]
    jobs = ([*torchrun(ranks), JOBS / "titan.py", *words] for _ in range(2))
    served = saves_and_learns_the_same(*jobs, tmp_path, PERSEUS_CONFIG=str(file))
    assert served.event("attached")["replicas"] == replicas


def assets(folder: Path) -> None:
    """The tokenizer and the texts that torchtitan's own configuration names, small and made here."""
    needed()
    (folder / "tokenizer").mkdir()
    words = {"<unk>": WORDS} | {f"w{number}": number for number in range(WORDS)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    written(folder / "tokenizer/tokenizer.json", tokenizer)
    written(folder / "tokenizer/tokenizer_config.json", {})
    texts = folder / "tests/assets/c4_test"
    texts.mkdir(parents=True)
    rows = [" ".join(f"w{(7 * row + word) % WORDS}" for word in range(64)) for row in range(WORDS)]
    (texts / "data.json").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))


# A DeepSpeed pipeline whose batches are grouped by length, with a deadline.

MOST_STEPS, MORE, BREATH_S = 3000, 2, 0.05
MICROBATCHES, ROWS, DEADLINE_S = 4, (1, 4, 2, 3), 20.5


def grouped() -> Batches:
    """Batches of as many rows in all microbatches of a step."""
    generator = torch.Generator().manual_seed(3)
    for rows in cycle(ROWS):
        for _ in range(MICROBATCHES):
            inputs = torch.randn(rows, 8, generator=generator)
            yield inputs, torch.sin(inputs)


def trained(rank: int, perseus: Mapping[str, Any] | None, steps: int) -> list[str]:
    """Train for so many steps, with our block until a saving was measured and a few more."""
    engine, data = build(config(MICROBATCHES, perseus=perseus), stages=2, inner=UNEVEN[-2:]), grouped()
    losses, left = list[str](), steps
    while left > 0:
        engine.reset_activation_shape()
        losses.append(float(engine.train_batch(data)).hex())
        left -= 1
        if perseus is not None and left > MORE:
            time.sleep(BREATH_S)
            left = MORE if agreed(happened("measured")(Path(perseus["run_dir"]))) else left
    return losses


def forked(perseus: Mapping[str, Any] | None, steps: int) -> Done:
    said = run_ranks(2, trained, perseus, steps)
    journal = [] if perseus is None else journal_of(Path(perseus["run_dir"]))
    losses = [one.value for one in said]
    return Done("".join(one.output for one in said), losses, len(losses[0]), journal)


def test_a_deadline_is_met_by_batches_of_unequal_lengths(tmp_path: Path) -> None:
    """Windows hold batches of every length: a profile, and so the deadline, is for the mean of those seen."""
    objective = {"policy": "deadline", "deadline_s": DEADLINE_S}
    profile = {"max_clocks": 4, "warmup_iterations": 2, "min_window_s": 60.0}
    served = forked(block(tmp_path / "run", objective=objective, profile=profile), MOST_STEPS)
    judge(served, forked(None, served.steps), most_slowdown_pct=1000.0)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["perseus"]["iteration_time_s"] <= 1.02 * DEADLINE_S
    assert any(one["event"] == "sizes_differ" for one in served.events)
