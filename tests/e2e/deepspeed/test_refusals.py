"""What cannot be served is refused in one clear line, and training goes on as if nobody had asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import MICROBATCHES, STAGES, UNEVEN, Lifecycle, block, copy_of, names, plain_losses
from ranks import Said, batches, build, config, run_ranks

from perseus_ds.errors import PerseusError

pytestmark = pytest.mark.e2e

STEPS = 2


@dataclass(frozen=True)
class Case:
    """A block that cannot be served, and what the refusal must name."""

    block: Mapping[str, Any]
    named: tuple[str, ...]
    microbatches: int = MICROBATCHES


def cases(lifecycle: Lifecycle, root: Path) -> dict[str, Case]:
    """Every refusal, each with a run directory of its own where it needs one."""
    plain = block(root / "none")
    other_gpu = {"gpu": "h100-sxm"}
    earlier = copy_of(lifecycle.run_dir, root / "earlier")
    cut_short = copy_of(lifecycle.run_dir, root / "cut short")
    shorten(cut_short / "plan.json")
    not_text = copy_of(lifecycle.run_dir, root / "not text")
    (not_text / "plan.json").write_bytes(b"\x80\x81\xff" * 100)
    a_file = root / "file"
    a_file.write_text("")
    return {
        "unknown key": Case({**plain, "modus": "automatic"}, ("perseus.modus",)),
        "wrong type": Case({**plain, "profile": {"min_window_s": "long"}}, ("perseus.profile.min_window_s",)),
        "no meaning": Case(
            {**plain, "profile": {"min_window_s": -1.0}}, ("perseus.profile.min_window_s", "-1")
        ),
        "no block": Case({**plain, "audit": 7}, ("perseus.audit",)),
        "run without a plan": Case({**plain, "mode": "run"}, ("perseus.mode", "plan.json")),
        "plan for other microbatches": Case(
            block(earlier, mode="run"), ("plan.json", "batches of 4 microbatches", "have 6"), microbatches=6
        ),
        "plan for another GPU": Case(
            block(earlier, mode="run", simulated=other_gpu), ("plan.json", "gpu is", "A100", "H100")
        ),
        "plan cut short": Case(block(cut_short, mode="run"), ("plan.json",)),
        "plan that is no text": Case(block(not_text, mode="run"), ("plan.json",)),
        "unknown GPU": Case({**plain, "simulated": {"gpu": "a101"}}, ("a101",)),
        "forward_s too short": Case(
            {**plain, "simulated": {"forward_s": [0.1, 0.1, 0.1]}}, ("forward_s", "3 entries", "4 stages")
        ),
        "forward_s too long": Case(
            {**plain, "simulated": {"forward_s": [0.1] * 5}}, ("forward_s", "5 entries", "4 stages")
        ),
        "a file as run_dir": Case({**plain, "run_dir": str(a_file)}, ("perseus.run_dir", "is not a folder")),
        "timelines that are not there": Case(
            {**plain, "objective": {"timelines": str(root / "nowhere")}}, ("nowhere", "No such file")
        ),
        "GPUs in a list": Case({**plain, "simulated": {"gpu": ["a40"]}}, ("simulated.gpu", "['a40']")),
        "unknown device": Case({**plain, "device": "abacus"}, ("perseus.device", "abacus")),
    }


def shorten(file: Path) -> None:
    text = file.read_text()
    file.write_text(text[: len(text) // 2])


def go_through(rank: int, blocks: Mapping[str, Case]) -> dict[str, tuple[list[str], bool]]:
    """Build and train one engine per case, in one process."""
    seen = {}
    for name, case in blocks.items():
        print(f"== {name}", flush=True)  # noqa: T201
        content = config(case.microbatches, gradient_clipping=1.0, perseus=case.block)
        engine = build(content, stages=STAGES, inner=UNEVEN)
        data = batches()
        losses = [float(engine.train_batch(data)).hex() for _ in range(STEPS)]
        seen[name] = (losses, "_exec_schedule" in vars(engine))
    return seen


NAMES = (
    "unknown key",
    "wrong type",
    "no meaning",
    "no block",
    "run without a plan",
    "plan for other microbatches",
    "plan for another GPU",
    "plan cut short",
    "plan that is no text",
    "unknown GPU",
    "forward_s too short",
    "forward_s too long",
    "a file as run_dir",
    "timelines that are not there",
    "GPUs in a list",
    "unknown device",
)


@pytest.fixture(scope="module")
def blocks(lifecycle: Lifecycle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return cases(lifecycle, tmp_path_factory.mktemp("refused"))


@pytest.fixture(scope="module")
def refused(blocks: dict[str, Case]) -> list[Said]:
    assert tuple(blocks) == NAMES
    return run_ranks(4, go_through, blocks)


@pytest.mark.parametrize("name", NAMES)
def test_one_line_names_what_is_wrong(refused: list[Said], blocks: dict[str, Case], name: str) -> None:
    said = next(active_plan for active_plan in refused[0].output.split("== ") if active_plan.startswith(name))
    lines = [line for line in said.splitlines() if line.startswith("perseus: ")]
    assert len(lines) == 1
    assert "off, training" in lines[0]
    for rank_status in blocks[name].named:
        assert rank_status in lines[0]
    assert "unexpected" not in lines[0]


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_untouched(refused: list[Said], blocks: dict[str, Case], name: str) -> None:
    plain = plain_losses(STEPS, microbatches=blocks[name].microbatches)
    assert [said.value[name] for said in refused] == [(losses, False) for losses in plain]


def test_other_ranks_are_silent(refused: list[Said]) -> None:
    assert not any("perseus: " in said.output for said in refused[1:])


def raise_through(rank: int, blocks: Mapping[str, Case]) -> dict[str, str]:
    """The same with ``on_error: raise``: what each case raises."""
    seen = {}
    for name, case in blocks.items():
        content = config(case.microbatches, perseus={**case.block, "on_error": "raise"})
        try:
            build(content, stages=STAGES, inner=UNEVEN).train_batch(batches())
        except PerseusError as error:
            seen[name] = str(error)
    return seen


def test_raised_where_the_user_wants_that(blocks: dict[str, Case]) -> None:
    for said in run_ranks(4, raise_through, blocks):
        assert list(said.value) == list(NAMES)
        for name, case in blocks.items():
            assert all(rank_status in said.value[name] for rank_status in case.named)


def damaged(run_dir: Path, name: str, damage: Callable[[Path], None]) -> Path:
    damage(run_dir / name)
    return run_dir


def start(rank: int, blocks: list[Mapping[str, Any]]) -> None:
    for one in blocks:
        engine = build(config(perseus=one), stages=STAGES, inner=UNEVEN)
        data = batches()
        for _ in range(4):
            engine.train_batch(data)


def test_auto_starts_again_from_what_is_left(lifecycle: Lifecycle, tmp_path: Path) -> None:
    """A plan cut short is planned again, a profile cut short is measured again; both say why."""
    no_plan = damaged(copy_of(lifecycle.run_dir, tmp_path / "a"), "plan.json", shorten)
    nothing = copy_of(lifecycle.run_dir, tmp_path / "b", without=("plan.json",))
    damaged(nothing, "profile.json", shorten)
    run_ranks(4, start, [block(no_plan), block(nothing)])
    assert names(no_plan)[:4] == ["attached", "warming_up", "calibrated", "planning"]
    assert names(nothing)[:4] == ["attached", "warming_up", "calibrated", "profiling"]
    first = json.loads((no_plan / "events.jsonl").read_text().splitlines()[0])
    assert "plan.json" in first["line"]
