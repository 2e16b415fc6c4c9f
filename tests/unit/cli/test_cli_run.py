"""``perseus-ds run``: checks first, then the job as it is, with the flags, in place of the command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program, Refused

from perseus_ds.cli.job_config import HookStatus, read_job_config
from perseus_ds.cli.run import deepspeed_json_of
from perseus_ds.config import parse, read_block
from perseus_ds.errors import PerseusError
from perseus_ds.runtime.usable import check_usable

pytestmark = pytest.mark.usefixtures("armed", "here")


def _config(tmp_path: Path, **content: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(content))
    return path


def _job(tmp_path: Path, script: str) -> list[str]:
    path = tmp_path / "job.py"
    path.write_text(script)
    return [sys.executable, str(path)]


def _started(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perseus_ds", "run", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_job_takes_the_place_of_the_command_with_the_flags(tmp_path: Path) -> None:
    """So signals, exit code and terminal are its own."""
    seen = tmp_path / "seen.json"
    told = f"json.dump([os.getppid(), dict(os.environ)], open({str(seen)!r}, 'w'))"
    job = _job(tmp_path, f"import json, os, sys\n{told}\nsys.exit(len(sys.argv))\n")
    flags = ("--mode", "profile", "--device", "simulated", "--run-dir", tmp_path / "run")
    assert _started(*flags, "--", *job, "--mode", "x", "--help").returncode == 4
    parent, environment = json.loads(seen.read_text())
    assert parent == os.getpid()
    added = environment.keys() - os.environ.keys()
    assert {name: environment[name] for name in added if name.startswith("PERSEUS_")} == {
        "PERSEUS_MODE": "profile",
        "PERSEUS_DEVICE": "simulated",
        "PERSEUS_RUN_DIR": str(tmp_path / "run"),
    }


def test_a_file_with_the_block_reaches_the_job(tmp_path: Path) -> None:
    file = tmp_path / "perseus.json"
    file.write_text(json.dumps({"run_dir": str(tmp_path / "run"), "device": "simulated"}))
    job = _job(tmp_path, "import os; print(os.environ['PERSEUS_CONFIG'])")
    said = _started("--config", file, "--", *job)
    assert (said.returncode, said.stdout, said.stderr) == (0, f"{file}\n", "")


def test_two_blocks_none_that_asks_for_us_and_an_unarmed_hook_are_refused(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, file = {"enabled": True, "run_dir": str(tmp_path)}, tmp_path / "perseus.json"
    file.write_text(json.dumps(block))
    job = [*_job(tmp_path, ""), "--deepspeed_config", str(_config(tmp_path, perseus=block))]
    assert "another" in refused("run", "--config", file, "--", *job)
    config = _config(tmp_path, train_batch_size=8)
    assert "enabled" in refused("run", "--", "true", f"--deepspeed_config={config}")
    off = HookStatus("python", None, "0", "2.7.1", "0.19.8", "it is off", "turn it on")
    monkeypatch.setattr("perseus_ds.cli.run.hook_status", lambda _: off)
    assert "turn it on" in refused("run", "--", "true")


JOBS = {
    "DeepSpeed": ["deepspeed", "train.py", "--deepspeed_config", "ds.json"],
    "DeepSpeed, =": ["deepspeed", "train.py", "--deepspeed-config=ds.json", "--more"],
    "HF Trainer": ["torchrun", "train.py", "--deepspeed", "ds.json"],
    "HF Trainer, =": ["torchrun", "train.py", "--deepspeed=ds.json"],
    "Accelerate's flag": ["accelerate", "launch", "--deepspeed_config_file", "ds.json", "train.py"],
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_bad_block_is_refused_before_a_job_starts(refused: Refused, tmp_path: Path, job: list[str]) -> None:
    _config(tmp_path, perseus={"enabled": True, "modus": "observe"})
    line = refused("run", "--", *job)
    assert all(words in line for words in ("ds.json", "perseus.modus"))


@pytest.mark.parametrize(
    "words",
    [
        *("deepspeed t.py", "deepspeed t.py --deepspeed_config", "deepspeed t.py --deepspeed"),
        *("deepspeed t.py --deepspeed --seed 1", "python t.py --config_file acc.yaml"),
        f"python t.py --prompt {300 * 'x'}",
    ],
)
def test_commands_that_name_no_configuration(words: str) -> None:
    assert deepspeed_json_of(words.split()) is None


def test_no_such_program(perseus: Program, tmp_path: Path) -> None:
    answer = perseus("run", "--run-dir", tmp_path, "--", str(tmp_path / "deepspede"))
    assert (answer.code, "deepspede" in answer.err) == (1, True)


def test_timers_that_end_a_pipeline_job_are_warned_about(tmp_path: Path) -> None:
    content = {"wall_clock_breakdown": True, "flops_profiler": {"enabled": True}}
    path = _config(tmp_path, **content, perseus={"enabled": True})
    for version, findings in (("0.19.8", 2), ("0.18.3", 2), ("0.18.2", 0), ("0.20.0", 0), (None, 0)):
        assert len(read_job_config(path, {}, deepspeed_version=version).findings) == findings


# Blocks that would fail later are refused beforehand: by ``doctor``, by ``run`` and by the job alike.


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("{}")
    os.mkfifo("pipe")


def simulated(**block: object) -> dict[str, object]:
    return {"device": "simulated", "simulated": block}


def objective(**block: object) -> dict[str, object]:
    return {"objective": block}


BUDGETED = "perseus.objective.timelines and perseus.objective.{} are set"
BLOCKS: dict[str, tuple[dict[str, object], str]] = {
    "a file as run_dir": ({"run_dir": "file"}, "perseus.run_dir is 'file': file is not a folder"),
    "a folder in a file": ({"run_dir": "file/run"}, "file is not a folder"),
    "a pipe as run_dir": ({"run_dir": "pipe"}, "pipe is not a folder"),
    "no GPU's name": (simulated(gpu="???"), "simulated.gpu"),
    "a name with a zero": ({"run_dir": "a\0b"}, "perseus.run_dir is 'a\\x00b'"),
    "a name that no folder can have": ({"run_dir": "a" * 300}, "File name too long"),
    "a budget": (objective(timelines="file", changes_per_s=0), BUDGETED.format("changes_per_s")),
    "a node's": (objective(timelines="file", node_changes_per_s=5), BUDGETED.format("node_changes_per_s")),
    "timelines that are not there": (objective(timelines="nowhere.json"), "nowhere.json: No such"),
    "timelines that are none": (objective(timelines="file"), "file is not a perseus-kernel-timel"),
    "timelines that are a pipe": (objective(timelines="pipe"), "pipe is not an ordinary file"),
    "kernels that are not there": (simulated(kernels="nowhere.json"), "nowhere.json: No such file"),
    "no stage at all": (simulated(forward_s=[]), "simulated.forward_s: got ["),
    "GPUs in a list": (simulated(gpu=["a40"]), "simulated.gpu: got ['a40']"),
    "a clock below the grid": (simulated(throttle_mhz=5), "throttle_mhz: got 5, expected a number >= 210"),
    "two names of a rank": (simulated(ranks={"3": {}, "03": {}}), "simulated.ranks.03: got"),
    "a seed below 0": (simulated(seed=-1), "simulated.seed: got -1"),
    "no plan to run": ({"mode": "run"}, "perseus.mode is 'run' and there is no plan"),
}


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(PerseusError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("what", BLOCKS)
def test_a_block_that_would_fail_later_is_refused_by_run_and_by_the_job(what: str, refused: Refused) -> None:
    block, why = BLOCKS[what]
    _config(Path(), perseus={"enabled": True, **block})
    assert why in refused("run", "--", "train.py", "--deepspeed_config", "ds.json")
    if what != "no plan to run":  # the job looks for one that fits
        assert why in refusal(lambda: check_usable(parse({"enabled": True, **block}, {})))


@pytest.mark.parametrize("what", ["a file as run_dir", "timelines that are not there"])
def test_doctor_refuses_them_too(what: str, on_node: Program) -> None:
    block, why = BLOCKS[what]
    _config(Path(), perseus={"enabled": True, **block})
    answer = on_node("doctor", "--config", "ds.json")
    assert (answer.code, answer.err, why in answer.out) == (1, "", True)


def test_a_file_is_refused_by_run_and_by_doctor_where_the_environment_names_it(
    on_node: Program, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    Path("p.json").write_text("")
    assert "is empty" in refused("run", "--config", "p.json", "--", "train.py")
    monkeypatch.setenv("PERSEUS_CONFIG", "p.json")
    answer = on_node("doctor")
    assert (answer.code, answer.err, "is empty" in answer.out) == (1, "", True)
    Path("p.json").write_text("{}")
    assert on_node("doctor").code == 0
    Path("p.json").write_text('{"enabled": false}')
    assert "does not ask for the plugin" in refused("run", "--config", "p.json", "--", "train.py")


def test_off_in_yaml_is_off() -> None:
    """YAML 1.1 reads the word as false, and the mode is called so."""
    for text in ("mode: off\n", 'mode: "off"\n'):
        Path("p.yaml").write_text(text)
        assert parse(read_block("p.yaml"), {}).mode == "off"


def test_a_folder_that_is_to_be_made_is_one(tmp_path: Path) -> None:
    check_usable(parse({"enabled": True, "run_dir": str(tmp_path / "a" / "b" / "c")}, {}))
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_others_is_refused() -> None:
    assert "written" in refusal(lambda: check_usable(parse({"run_dir": "/proc/1/run"}, {})))
