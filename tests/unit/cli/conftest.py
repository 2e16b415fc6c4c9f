"""The program called in this process, and the files that it reads."""

import faulthandler
import gc
import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import fake_nvml
import pytest
from cli_program import CSV, Answer, Program, Refused
from ranks import begin_as_a_program

from perseus_ds.cli import main
from perseus_ds.cli.job_config import HookStatus


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> None:
    status = HookStatus("python", "perseus_ds._autoload:arm", "1", "2.7.1", "0.19.8", "", "")
    monkeypatch.setattr("perseus_ds.cli.run.hook_status", lambda _: status)
    for name in ("PERSEUS_CONFIG", "PERSEUS_MODE", "PERSEUS_DEVICE", "PERSEUS_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def perseus(capsys: pytest.CaptureFixture[str]) -> Program:
    def call(*words: object) -> Answer:
        return Answer(main([str(word) for word in words]), *capsys.readouterr())

    return call


@pytest.fixture
def refused(perseus: Program) -> Refused:
    """Call ``perseus-ds``, expect one line of refusal, return it."""

    def call(*words: object) -> str:
        answer = perseus(*words)
        assert answer.code == 1
        assert answer.out == ""
        assert "Traceback" not in answer.err
        lines = [line for line in answer.err.splitlines() if "assuming a blocking power" not in line]
        assert len(lines) == 1
        return lines[0].removeprefix("perseus-ds: ")

    return call


@pytest.fixture
def profile_csv(tmp_path: Path) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(CSV)
    return path


@pytest.fixture
def plan_file(profile_csv: Path, tmp_path: Path, perseus: Program) -> Path:
    path = tmp_path / "plan.json"
    words = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70)
    assert perseus("plan", profile_csv, *words, "-o", path).code == 0
    return path


@pytest.fixture
def torch_built_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have this Python's torch be a build with or without CUDA, as far as a look at its files tells."""

    def build(version: str) -> None:
        folder = tmp_path / "built" / "torch"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(version)
        monkeypatch.syspath_prepend(folder.parent)

    return build


@pytest.fixture
def cuda_torch(torch_built_for: Callable[[str], None]) -> None:
    torch_built_for("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_nvml.FakeNvml:
    """A node with two fake NVIDIA GPUs, for processes that we start: none of ours touches a real one."""
    why_not = fake_nvml.missing_compiler()
    if why_not is not None:
        pytest.skip(why_not)
    node = fake_nvml.FakeNvml(tmp_path / "gpus")
    monkeypatch.setenv("PERSEUS_GUARD_DIR", node.environment()["PERSEUS_GUARD_DIR"])
    return node


@pytest.fixture
def on_node(node: fake_nvml.FakeNvml, tmp_path: Path) -> Program:
    """Call ``perseus-ds`` in a process on that node, which has imported everything already."""
    out, err = tmp_path / "stdout", tmp_path / "stderr"

    def call(*words: object) -> Answer:
        process = multiprocessing.get_context("fork").Process(
            target=_forked, args=(node.environment(), list(map(str, words)), out, err)
        )
        gc.freeze()  # a child that destroyed an earlier test's process group would touch threads it has not
        process.start()
        gc.unfreeze()
        process.join(60)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        return Answer(process.exitcode, out.read_text(), err.read_text())

    return call


def _forked(environment: dict[str, str], words: list[str], out: Path, err: Path) -> None:
    begin_as_a_program()
    os.environ.update(environment)
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    faulthandler.enable()
    warnings.simplefilter("default")
    warnings.simplefilter("ignore", DeprecationWarning)
    code: object = 1
    try:
        fake_nvml.load()  # a program that starts finds it by its environment
        code = main(words)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
