"""Jobs that cannot be served are refused in one clear line, and train on as if nobody had asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import MICROBATCHES, STAGES, UNEVEN, Lifecycle, block, copy_of, plain_losses
from ranks import build, config, losses, run_ranks

from perseus_ds.errors import PerseusError

pytestmark = pytest.mark.e2e

STEPS = 2
Cases = Mapping[str, tuple[dict[str, Any], tuple[str, ...]]]
"""Blocks that cannot be served, and what each refusal must name."""


@pytest.fixture(scope="module")
def cases(lifecycle: Lifecycle, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Every refusal, each with a run directory of its own where it needs one."""
    root = tmp_path_factory.mktemp("refused")
    plain = block(root / "none")
    earlier, cut_short = (copy_of(lifecycle.run_dir, root / name) for name in ("earlier", "cut"))
    shorten(cut_short / "plan.json")
    (root / "file").write_text("")
    other_gpu, nowhere = {"gpu": "h100-sxm"}, str(root / "nowhere")
    return {
        "unknown key": (plain | {"modus": "automatic"}, ("perseus.modus",)),
        "run without a plan": (plain | {"mode": "run"}, ("perseus.mode", "plan.json")),
        "plan for 4": (block(earlier, mode="run"), ("plan.json", "batches of 4 microbatches", "have 6")),
        "plan for another GPU": (
            block(earlier, mode="run", simulated=other_gpu),
            ("plan.json", "gpu is", "A100", "H100"),
        ),
        "plan cut short": (block(cut_short, mode="run"), ("plan.json",)),
        "unknown GPU": (plain | {"simulated": {"gpu": "a101"}}, ("a101",)),
        "too short": (
            plain | {"simulated": {"forward_s": [0.1] * 3}},
            ("forward_s", "3 entries", "4 stages"),
        ),
        "a file": (plain | {"run_dir": str(root / "file")}, ("perseus.run_dir", "is not a folder")),
        "no timelines": (plain | {"objective": {"timelines": nowhere}}, ("nowhere", "No such file")),
    }


def shorten(file: Path) -> None:
    text = file.read_text()
    file.write_text(text[: len(text) // 2])


def microbatches(name: str) -> int:
    return 6 if name == "plan for 4" else MICROBATCHES


def go_through(rank: int, cases: Cases) -> dict[str, tuple[list[str], bool]]:
    seen = {}
    for name, (perseus, _) in cases.items():
        print(f"== {name}\n", flush=True)  # noqa: T201
        content = config(microbatches(name), gradient_clipping=1.0, perseus=perseus)
        engine = build(content, stages=STAGES, inner=UNEVEN)
        seen[name] = losses(engine, STEPS), "_exec_schedule" in vars(engine)
    return seen


def test_one_line_names_what_is_wrong_and_training_goes_on_untouched(cases: Cases) -> None:
    said = run_ranks(4, go_through, cases)
    parts = dict(part.split("\n", 1) for part in said[0].output.split("== ")[1:])
    for name, (_, named) in cases.items():
        (line,) = [line for line in parts[name].splitlines() if line.startswith("perseus: ")]
        assert "off, training" in line
        assert [word for word in named if word not in line] == [], line
        assert "unexpected" not in line
        plain = plain_losses(STEPS, microbatches=microbatches(name))
        assert [one.value[name] for one in said] == [(losses, False) for losses in plain], name
    assert not any("perseus: " in one.output for one in said[1:]), "other ranks are silent"


def raise_through(rank: int, cases: Cases) -> dict[str, str]:
    """The same with ``on_error: raise``: what each case raises."""
    seen = {}
    for name, (perseus, _) in cases.items():
        content = config(microbatches(name), perseus=perseus | {"on_error": "raise"})
        try:
            losses(build(content, stages=STAGES, inner=UNEVEN), 1)
        except PerseusError as error:
            seen[name] = str(error)
    return seen


def test_raised_where_the_user_wants_that(cases: Cases) -> None:
    for said in run_ranks(4, raise_through, cases):
        assert list(said.value) == list(cases)
        for name, (_, named) in cases.items():
            assert [word for word in named if word not in said.value[name]] == []
