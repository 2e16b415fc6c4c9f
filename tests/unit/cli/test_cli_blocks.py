"""Blocks that would fail later are refused beforehand: by ``doctor``, by ``run`` and by the job alike."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.cli.job_config import HookStatus
from perseus_ds.config import parse, read_block
from perseus_ds.errors import PerseusError
from perseus_ds.runtime.usable import check_usable

ARMED = HookStatus("python", "perseus_ds._autoload:arm", "1", "2.7.1", "0.19.8", "", "")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("perseus_ds.cli.run.hook_status", lambda _: ARMED)
    for name in ("PERSEUS_CONFIG", "PERSEUS_MODE", "PERSEUS_DEVICE", "PERSEUS_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("{}")
    Path("dangling").symlink_to("nowhere")
    os.mkfifo("pipe")


def simulated(**block: object) -> dict[str, object]:
    return {"device": "simulated", "simulated": block}


BLOCKS: dict[str, tuple[dict[str, object], str]] = {
    "a file as run_dir": ({"run_dir": "file"}, "perseus.run_dir is 'file': file is not a folder"),
    "a folder in a file": ({"run_dir": "file/run"}, "file is not a folder"),
    "a link to nothing": ({"run_dir": "dangling"}, "dangling is not a folder"),
    "a pipe as run_dir": ({"run_dir": "pipe"}, "pipe is not a folder"),
    "no GPU's name": (simulated(gpu="???"), "simulated.gpu"),
    "a blank name": ({"run_dir": "  "}, "perseus.run_dir"),
    "a name with a zero": ({"run_dir": "a\0b"}, "perseus.run_dir is 'a\\x00b'"),
    "a name of two lines": ({"run_dir": "a\nb"}, "perseus.run_dir is 'a\\nb'"),
    "a name that no folder can have": ({"run_dir": "a" * 300}, "File name too long"),
    "timelines within a budget": (
        {"objective": {"timelines": "file", "changes_per_s": 0}},
        "perseus.objective.timelines and perseus.objective.changes_per_s are set",
    ),
    "timelines within a node's budget": (
        {"objective": {"timelines": "file", "node_changes_per_s": 5}},
        "perseus.objective.timelines and perseus.objective.node_changes_per_s are set",
    ),
    "timelines that are not there": ({"objective": {"timelines": "nowhere.json"}}, "nowhere.json: No such"),
    "timelines that are none": ({"objective": {"timelines": "file"}}, "file is not a perseus-kernel-timel"),
    "timelines that are a pipe": ({"objective": {"timelines": "pipe"}}, "pipe is not an ordinary file"),
    "kernels that are not there": (simulated(kernels="nowhere.json"), "nowhere.json: No such file"),
    "no stage at all": (simulated(forward_s=[]), "simulated.forward_s: got ["),
    "GPUs in a list": (simulated(gpu=["a40"]), "simulated.gpu: got ['a40']"),
    "GPUs in an object": (simulated(gpu={"a": 1}), "simulated.gpu: got {'a': 1}"),
    "a clock below the grid": (
        simulated(throttle_mhz=5),
        "simulated.throttle_mhz: got 5, expected a number >= 210",
    ),
    "two names of a rank": (simulated(ranks={"3": {}, "03": {}}), "simulated.ranks.03: got"),
    "a rank of other digits": (simulated(ranks={"\u0663": {}}), "simulated.ranks.\u0663: got"),
    "a seed below 0": (simulated(seed=-1), "simulated.seed: got -1"),
    "no plan to run": ({"mode": "run"}, "perseus.mode is 'run' and there is no plan"),
}
FILES: dict[str, tuple[str, str, str]] = {
    "empty": ("p.json", "", "is empty"),
    "empty YAML": ("p.yaml", "\n", "is empty"),
    "a comment": ("p.json", "// later", "is empty"),
    "a comment in YAML": ("p.yaml", "# later\n", "is empty"),
    "a key twice": ("p.json", '{"mode": "off", "mode": "run"}', "'mode' stands there twice"),
    "a key twice deep down": (
        "p.json",
        '{"audit": {"iterations": 3, "iterations": 4}}',
        "'iterations' stands",
    ),
    "a key twice in YAML": ("p.yaml", "mode: off\nmode: run\n", "found duplicate key mode"),
    "a word of YAML": ("p.yaml", "objective: {split: no}\n", "unless quoted"),
    "an endless number": ("p.yaml", "device: simulated\nsimulated: {time_scale: .inf}\n", "got inf"),
    "no number": (
        "p.yaml",
        "objective: {policy: deadline, deadline_s: .nan}\n",
        "perseus.objective.deadline_s is nan",
    ),
    "a rank twice in YAML": (
        "p.yaml",
        'device: simulated\nsimulated: {ranks: {3: {}, "3": {}}}\n',
        "Conflicting integer and string keys: 3 and '3'",
    ),
    "switched off": ("p.json", '{"enabled": false}', "does not ask for the plugin"),
}


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(PerseusError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("what", BLOCKS)
def test_a_block_that_would_fail_later_is_refused_by_run_and_by_the_job(
    what: str, refused: Callable[..., str]
) -> None:
    block, why = BLOCKS[what]
    Path("ds.json").write_text(json.dumps({"perseus": {"enabled": True, **block}}))
    assert why in refused("run", "--", "train.py", "--deepspeed_config", "ds.json")
    if what != "no plan to run":  # the job looks for one that fits
        assert why in refusal(lambda: check_usable(parse({"enabled": True, **block}, {})))


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_would_fail_later_is_refused_by_run_and_by_the_job(
    what: str, refused: Callable[..., str]
) -> None:
    name, text, why = FILES[what]
    Path(name).write_text(text)
    assert why in refused("run", "--config", name, "--", "train.py")
    if what != "switched off":
        assert why in refusal(lambda: check_usable(parse({"enabled": True, **read_block(name)}, {})))


@pytest.mark.parametrize("what", ["a file as run_dir", "a blank name", "timelines that are not there"])
def test_doctor_refuses_them_too(what: str, on_node: Program) -> None:
    block, why = BLOCKS[what]
    Path("ds.json").write_text(json.dumps({"perseus": {"enabled": True, **block}}))
    answer = on_node("doctor", "--config", "ds.json")
    assert (answer.code, answer.err) == (1, "")
    assert why in answer.out


@pytest.mark.parametrize("what", ["empty", "a key twice in YAML"])
def test_doctor_looks_at_the_file_that_the_environment_names(
    what: str, on_node: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, text, why = FILES[what]
    Path(name).write_text(text)
    monkeypatch.setenv("PERSEUS_CONFIG", name)
    answer = on_node("doctor")
    assert (answer.code, answer.err) == (1, "")
    assert why in answer.out
    Path(name).write_text("{}")
    assert on_node("doctor").code == 0


def test_off_in_yaml_is_off(tmp_path: Path) -> None:
    """YAML 1.1 reads the word as false, and the mode is called so."""
    Path("p.yaml").write_text("mode: off\n")
    assert parse(read_block("p.yaml"), {}).mode == "off"
    Path("p.yaml").write_text('mode: "off"\n')
    assert parse(read_block("p.yaml"), {}).mode == "off"


def test_a_folder_that_is_to_be_made_is_one(tmp_path: Path) -> None:
    check_usable(parse({"enabled": True, "run_dir": str(tmp_path / "a" / "b" / "c")}, {}))
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_others_is_refused() -> None:
    assert "written" in refusal(lambda: check_usable(parse({"run_dir": "/proc/1/run"}, {})))
