import json
from pathlib import Path

import pytest

from perseus_ds.cli.main import main
from perseus_ds.errors import ProfileError
from perseus_ds.kernels.trace import KERNEL_TRACES, KernelClass, KernelTrace, LaunchSequence
from perseus_ds.plan.record import read_timelines
from perseus_ds.schedule import Kind


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    classes = (
        KernelClass("aten::mm", ((8192, 2048), (2048, 2048)), "bfloat16"),
        KernelClass("aten::gelu", ((8192, 2048),), "bfloat16"),
    )
    sequences = (
        LaunchSequence(0, Kind.FORWARD, (0, 1) * 4, times=4),
        LaunchSequence(0, Kind.BACKWARD, (1, 0, 0) * 4, times=4),
    )
    path = tmp_path / "trace.json"
    KERNEL_TRACES.write(KernelTrace(classes, sequences), path)
    return path


QUICK = ["--core-clocks", "4", "--window-s", "0.2", "--windows", "2"]


@pytest.mark.thorough
def test_from_trace_to_choice(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trace.parent
    profile, plan, lines = (str(folder / f"{name}.json") for name in ("profile", "plan", "timelines"))
    assert main(["kernels", "measure", str(trace), "-o", profile, "--simulated", "rtx-3080-ti", *QUICK]) == 0
    assert "25 pairs" in capsys.readouterr().out
    assert main(["kernels", "plan", profile, str(trace), "-o", plan, "--timelines", lines]) == 0
    spared = [dict(one.spared_w) for one in read_timelines(Path(lines))]
    assert all(one[810] > one[5001] > 0.0 for one in spared)
    told = capsys.readouterr().out
    assert all(words in told for words in ("+- %", "40 ms"))
    assert max(len(line) for line in told.splitlines() if "/" not in line) <= 80
    assert main(["kernels", "show", plan]) == 0
    assert capsys.readouterr().out == told
    assert main(["kernels", "show", plan, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    totals = {(one["level"], one["goal"], one["scope"]): one for one in content["totals"]}
    unslowed = totals["kernel", "no slowdown", "global"]
    assert unslowed["energy_pct"] < -10
    assert unslowed["time_pct"] < 1.5
    energy = [left["energy_pct"] for left in content["left"]]
    assert -20 < energy[0] < -10 < -5 < energy[-1] <= 0, "slow changes leave little"


def test_one_memory_clock_is_one_dimension(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = trace.parent / "profile.json"
    measure = ["kernels", "measure", str(trace), "-o", str(profile), "--simulated", "a100-sxm4-80gb", *QUICK]
    assert main(measure) == 0
    told = capsys.readouterr()
    assert "5 pairs" in told.out
    assert "memory" in told.err
    lines = trace.parent / "timelines.json"
    plan = ["kernels", "plan", str(profile), str(trace), "--latency-ms", "5", "--timelines", str(lines)]
    assert main([*plan, "--json"]) == 0
    for instruction in read_timelines(lines):
        fastest, cheapest = instruction.timelines[0], instruction.timelines[-1]
        assert fastest.time_s < cheapest.time_s
        assert fastest.energy_j > cheapest.energy_j
    content = json.loads(lines.read_text())
    content["instructions"][0]["timelines"][0]["steps"][0]["offset_s"] = 0.5
    lines.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=r"timelines"):
        read_timelines(lines)
    assert [left["latency_s"] for left in json.loads(capsys.readouterr().out)["left"]] == [0.005]


def test_what_cannot_be_read_and_a_job_that_traces_nothing_are_refused(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job is started as `perseus-ds run` starts it, and its exit code is returned."""
    assert main(["kernels", "plan", str(trace), str(trace)]) == 1
    assert "perseus-kernel-profile" in capsys.readouterr().err
    words = ["kernels", "trace", "--run-dir", str(tmp_path / "run"), "-o", str(tmp_path / "t.json")]
    assert main([*words, "--", "true"]) == 1
    assert "run/kernels" in capsys.readouterr().err
    assert main([*words, "--", "false"]) == 1
    assert main(words) == 1
    assert not (tmp_path / "t.json").exists()
