"""The outside without its words: commands and their JSON, keys of the block, damaged files.

Only exit codes, keys and the word that a refusal must hold are recorded.
"""

import contextlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perseus_ds.cli.main import main
from perseus_ds.config import parse
from perseus_ds.errors import PerseusError
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile, write_profile

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "profile.csv"
SIZES = "--stages 4 --microbatches 8 --blocking-power-w 70"

BLOCKS: list[Mapping[str, Any]] = [
    {},
    {"enabled": True},
    {"enabled": True, "mode": "run", "run_dir": "runs/a", "device": "simulated", "on_error": "raise"},
    {"enabled": True, "device": "nvml", "allow_unguarded_container": True},
    {"enabled": True, "trace_kernels": 3},
    *(
        {"objective": own}
        for own in (
            {"policy": "no_slowdown"},
            {"policy": "max_slowdown", "max_slowdown_pct": 5.0},
            {"policy": "deadline", "deadline_s": 3.0},
            {"policy": "min_energy"},
            {"reserve_pct": 1.0, "split": "never", "waits": "never"},
            {"changes_per_s": 5.0},
            {"node_changes_per_s": 5.0},
        )
    ),
    {"profile": {"min_window_s": 2.0, "max_clocks": 5, "max_slower_pct": 10.0, "reuse": False}},
    {"profile": {"warmup_iterations": 3, "settle_s": 0.5}},
    {"audit": {"every_iterations": 100, "iterations": 5, "settle_s": 0.5}},
    {"straggler": {"enabled": False}},
    {"straggler": {"max_cost_pct": 0.1}},
    {"metrics": {"enabled": True, "folder": "metrics"}},
    {"simulated": {"gpu": "a40", "seed": 3, "noise": 0.01}},
    # refused
    {"modus": "run"},
    {"mode": "fast"},
    {"enabled": 1},
    {"device": "tpu"},
    {"objective": {"policy": "fast"}},
    {"objective": {"policy": "deadline"}},
    {"objective": {"policy": "max_slowdown", "max_slowdown_pct": -1}},
    {"objective": {"deadline": 3}},
    {"profile": {"min_window_s": 0}},
    {"profile": {"max_clocks": 1}},
    {"audit": {"iterations": 0}},
    {"straggler": {"max_cost_pct": "none"}},
    {"simulated": {"gpu": "abacus"}},
]


def _blocks(_: Path) -> dict[str, Any]:
    """Accepted, or the key that the refusal names."""
    found: dict[str, Any] = {}
    for block in BLOCKS:
        keys = _keys(block)
        try:
            parse(dict(block), {})
            found[json.dumps(block)] = "accepted"
        except PerseusError as error:
            found[json.dumps(block)] = [key for key in keys if key in str(error)][-1:] or "no key named"
    return found


def _keys(block: Mapping[str, Any]) -> list[str]:
    return [
        name
        for key, value in block.items()
        for name in (key, *(_keys(value) if isinstance(value, dict) else ()))
    ]


def _commands(folder: Path) -> dict[str, Any]:
    """Exit code and the JSON's keys of each command."""
    calls = {
        "plan": f"plan profile.csv {SIZES} -o plan.json --json",
        "plan with a frontier": f"plan profile.csv {SIZES} -o plan.json --frontier-csv f.csv",
        "show": "show plan.json --format json",
        "show a plan": "show plan.json --plan 0 --format csv",
        "show beside a straggler": "show plan.json --straggler 2.2",
        "show within a slowdown": "show plan.json --max-slowdown 5",
        "show before a deadline": "show plan.json --deadline 2.2",
        "verify": "verify plan.json",
        "simulate": "simulate plan.json profile.csv --json",
        "doctor": "doctor --json",
        "guardd status without a service": "guardd status",
        # refused
        "plan without sizes": "plan profile.csv",
        "plan of no file": f"plan none.csv {SIZES}",
        "plan of too many stages": "plan profile.csv --stages 9 --microbatches 8 --blocking-power-w 70",
        "show no file": "show none.json",
        "show no such plan": "show plan.json --plan 100000",
        "verify no plan": "verify profile.csv",
        "report of no run": "report none",
        "notify no run": "notify none --pipeline 0 --slowdown 1.2",
        "run nothing": "run",
        "no such command": "fly",
    }
    found = {}
    for name, words in calls.items():
        code, out, error = _called(words.split(), folder)
        row: dict[str, Any] = {"exit code": code}
        if code == 0 and out.lstrip().startswith(("{", "[")):
            row["keys"] = _shape(json.loads(out))
        if code == 1:
            row["lines"] = len(error.strip().splitlines()) <= 2
        found[name] = row
    found["frontier csv"] = {"header": (folder / "f.csv").read_text().splitlines()[0]}
    return found


def _called(words: list[str], folder: Path) -> tuple[object, str, str]:
    """Run a command beside the example's profile; return its exit code and what it printed."""
    (folder / "profile.csv").write_bytes(EXAMPLE.read_bytes())
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            code: object = main(words)
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue(), error.getvalue()


def _shape(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return sorted(value)
    return [_shape(value[0])] if isinstance(value, list) and value else type(value).__name__


DAMAGES: Mapping[str, Callable[[str], str]] = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "no object": lambda _: "[1, 2]",
    "a number is a word": lambda text: (
        text.replace("0", '"zero"', 1) if '"version"' not in text[:20] else text[:-3]
    ),
    "not a number": lambda text: text.replace("1.", "NaN, ", 1),
    "version of the future": lambda text: text.replace('"version": 1', '"version": 99').replace(
        '"version":1', '"version":99'
    ),
}


def _damaged(folder: Path) -> dict[str, Any]:
    """Whether a damaged profile and plan are refused in words that name the file."""
    _called(f"plan profile.csv {SIZES} -o plan.json".split(), folder)
    write_profile(read_profile(EXAMPLE), folder / "profile.json")
    found = {}
    for name, read in (("plan.json", read_plans), ("profile.json", read_profile)):
        text = (folder / name).read_text()
        for damage, apply in DAMAGES.items():
            path = folder / f"damaged-{name}"
            path.write_text(apply(text))
            if path.read_text() == text:
                continue
            try:
                read(path)
                found[f"{name} {damage}"] = "accepted"
            except PerseusError as error:
                found[f"{name} {damage}"] = (
                    "refused" if path.name in str(error) else "refused without its name"
                )
    return found


CASES = {"blocks": _blocks, "commands": _commands, "damaged files": _damaged}
