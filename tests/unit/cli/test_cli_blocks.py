"""Blocks that would fail later are refused beforehand: by ``doctor``, by ``run`` and by the job alike."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.config import parse, read_block
from perseus_ds.errors import PerseusError
from perseus_ds.runtime.usable import check_usable


@pytest.fixture(autouse=True)
def here(armed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("{}")
    os.mkfifo("pipe")


def simulated(**block: object) -> dict[str, object]:
    return {"device": "simulated", "simulated": block}


BLOCKS: dict[str, tuple[dict[str, object], str]] = {
    "a file as run_dir": ({"run_dir": "file"}, "perseus.run_dir is 'file': file is not a folder"),
    "a folder in a file": ({"run_dir": "file/run"}, "file is not a folder"),
    "a pipe as run_dir": ({"run_dir": "pipe"}, "pipe is not a folder"),
    "no GPU's name": (simulated(gpu="???"), "simulated.gpu"),
    "a name with a zero": ({"run_dir": "a\0b"}, "perseus.run_dir is 'a\\x00b'"),
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
    "a clock below the grid": (
        simulated(throttle_mhz=5),
        "simulated.throttle_mhz: got 5, expected a number >= 210",
    ),
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
def test_a_block_that_would_fail_later_is_refused_by_run_and_by_the_job(
    what: str, refused: Callable[..., str]
) -> None:
    block, why = BLOCKS[what]
    Path("ds.json").write_text(json.dumps({"perseus": {"enabled": True, **block}}))
    assert why in refused("run", "--", "train.py", "--deepspeed_config", "ds.json")
    if what != "no plan to run":  # the job looks for one that fits
        assert why in refusal(lambda: check_usable(parse({"enabled": True, **block}, {})))


@pytest.mark.parametrize("what", ["a file as run_dir", "timelines that are not there"])
def test_doctor_refuses_them_too(what: str, on_node: Program) -> None:
    block, why = BLOCKS[what]
    Path("ds.json").write_text(json.dumps({"perseus": {"enabled": True, **block}}))
    answer = on_node("doctor", "--config", "ds.json")
    assert (answer.code, answer.err) == (1, "")
    assert why in answer.out


def test_a_file_is_refused_by_run_and_by_doctor_where_the_environment_names_it(
    on_node: Program, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    Path("p.json").write_text("")
    assert "is empty" in refused("run", "--config", "p.json", "--", "train.py")
    monkeypatch.setenv("PERSEUS_CONFIG", "p.json")
    answer = on_node("doctor")
    assert (answer.code, answer.err) == (1, "")
    assert "is empty" in answer.out
    Path("p.json").write_text("{}")
    assert on_node("doctor").code == 0
    Path("p.json").write_text('{"enabled": false}')
    assert "does not ask for the plugin" in refused("run", "--config", "p.json", "--", "train.py")


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
