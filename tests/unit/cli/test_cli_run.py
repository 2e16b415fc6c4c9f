"""``perseus-ds run``: checks first, then the job as it is, with flags, signals and progress."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.cli.job.follow import Follower, in_words
from perseus_ds.cli.job.job_config import read_job_config
from perseus_ds.cli.job.named_config import deepspeed_config_of
from perseus_ds.cli.job.run import launch
from perseus_ds.cli.machine.hook_status import HookStatus
from perseus_ds.errors import ConfigError
from perseus_ds.run_directory import append_event

ARMED = HookStatus("python", "perseus_ds._autoload:arm", "1", "2.7.1", "0.19.8", "", "")


@pytest.fixture(autouse=True)
def armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_ds.cli.job.run.hook_status", lambda _: ARMED)
    for name in ("PERSEUS_CONFIG", "PERSEUS_MODE", "PERSEUS_DEVICE", "PERSEUS_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)


def _config(tmp_path: Path, **content: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(content))
    return path


def _job(tmp_path: Path, script: str) -> list[str]:
    path = tmp_path / "job.py"
    path.write_text(script)
    return [sys.executable, str(path)]


def test_the_job_gets_the_flags_and_its_code_comes_back(perseus: Program, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    job = _job(
        tmp_path,
        "import json, os, sys\n"
        f"json.dump(dict(os.environ), open({str(seen)!r}, 'w'))\n"
        "sys.exit(int(sys.argv[1]))\n",
    )
    flags = ("--mode", "profile", "--device", "simulated", "--run-dir", tmp_path / "run")
    assert perseus("run", *flags, "--", *job, 7).code == 7
    environment = json.loads(seen.read_text())
    added = environment.keys() - os.environ.keys()
    assert {name: environment[name] for name in added if name.startswith("PERSEUS_")} == {
        "PERSEUS_MODE": "profile",
        "PERSEUS_DEVICE": "simulated",
        "PERSEUS_RUN_DIR": str(tmp_path / "run"),
    }


def test_a_file_with_the_block_reaches_the_job_and_is_followed(perseus: Program, tmp_path: Path) -> None:
    run_dir, seen, file = tmp_path / "run", tmp_path / "seen", tmp_path / "perseus.json"
    file.write_text(json.dumps({"run_dir": str(run_dir), "device": "simulated"}))
    job = _job(
        tmp_path,
        "import os\n"
        "from pathlib import Path\n"
        "from perseus_ds.run_directory import append_event\n"
        f"Path({str(seen)!r}).write_text(os.environ['PERSEUS_CONFIG'])\n"
        f"append_event(Path({str(run_dir)!r}) / 'events.jsonl', 'planning', {{}})\n",
    )
    said = perseus("run", "--config", file, "--", *job)
    assert said.code == 0
    assert seen.read_text() == str(file)
    assert "planning" in said.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "YAML"),
        ('{"objektive": {}}', "perseus.objektive"),
        ("[]", "block"),
    ],
)
def test_a_file_that_training_would_refuse(
    refused: Callable[..., str], tmp_path: Path, content: str | None, words: str
) -> None:
    file = tmp_path / "perseus.json"
    if content is not None:
        file.write_text(content)
    assert words in refused("run", "--config", file, "--", *_job(tmp_path, ""))


def test_two_blocks_are_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    block, file = {"enabled": True, "run_dir": str(tmp_path)}, tmp_path / "perseus.json"
    file.write_text(json.dumps(block))
    job = [*_job(tmp_path, ""), "--deepspeed_config", str(_config(tmp_path, perseus=block))]
    assert "names another" in refused("run", "--config", file, "--", *job)


def test_the_jobs_own_flags_stay_its_own(perseus: Program, tmp_path: Path) -> None:
    job = _job(tmp_path, "import sys; sys.exit(len(sys.argv))")
    assert perseus("run", "--run-dir", tmp_path, "--", *job, "--mode", "x", "--help").code == 4


def test_progress_of_the_journal_is_said(perseus: Program, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    append_event(run_dir / "events.jsonl", "finished", {"of": "an earlier job"})
    job = _job(
        tmp_path,
        "import pathlib\n"
        f"with open({str(run_dir / 'events.jsonl')!r}, 'a') as file:\n"
        '    file.write(\'{"event": "warming_up", "iterations": 3}\\n\')\n'
        '    file.write(\'{"event": "profiling", "clock_mhz": 1200, "done": 2, "total": 9}\\n\')\n'
        '    file.write(\'{"event": "novelty", "facts": {"a": 1}}\\n{"half\')\n',
    )
    config = _config(tmp_path, perseus={"enabled": True, "run_dir": str(run_dir)})
    answer = perseus("run", "--", *job, "--deepspeed_config", config)
    assert answer.code == 0
    lines = answer.err.splitlines()
    words = ("warming up", "1200 MHz", "novelty")
    assert [word in line for word, line in zip(words, lines, strict=True)] == [True] * 3


def test_what_training_would_refuse_is_refused_before_it_starts(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    job = _job(tmp_path, f"open({str(started)!r}, 'w')")
    config = _config(tmp_path, perseus={"enabled": True, "mode": "rum"})
    line = refused("run", "--", *job, "--deepspeed_config", config)
    assert "perseus.mode" in line
    assert not started.exists()


def test_a_job_that_does_not_ask_for_us(refused: Callable[..., str], tmp_path: Path) -> None:
    config = _config(tmp_path, train_batch_size=8)
    assert "ds.json" in refused("run", "--", "true", f"--deepspeed_config={config}")


def test_an_unarmed_hook(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    off = HookStatus("python", None, "0", "2.7.1", "0.19.8", "it is off", "turn it on")
    monkeypatch.setattr("perseus_ds.cli.job.run.hook_status", lambda _: off)
    assert off.reason in (line := refused("run", "--", "true"))
    assert off.remedy in line


def test_no_job(refused: Callable[..., str]) -> None:
    assert "no job" in refused("run", "--")


def test_no_such_program(refused: Callable[..., str], tmp_path: Path) -> None:
    line = refused("run", "--run-dir", tmp_path, "--", str(tmp_path / "deepspede"))
    assert str(tmp_path / "deepspede") in line


def test_timers_that_end_a_pipeline_job_are_warned_about(tmp_path: Path) -> None:
    content = {"wall_clock_breakdown": True, "flops_profiler": {"enabled": True}}
    path = _config(tmp_path, **content, perseus={"enabled": True})
    for version, findings in (("0.19.8", 2), ("0.18.3", 2), ("0.18.2", 0), ("0.20.0", 0), (None, 0)):
        assert len(read_job_config(path, {}, deepspeed_version=version).findings) == findings


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "configs").glob("*.json")))
def test_every_configuration_of_ours_passes_with_its_comments(path: Path) -> None:
    found = read_job_config(path, {}, deepspeed_version="0.19.8")
    assert found.perseus is not None
    assert found.findings == ()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["deepspeed", "t.py", "--deepspeed_config", "a.json", "--x"], "a.json"),
        (["deepspeed", "t.py", "--deepspeed_config=b.json"], "b.json"),
        (["deepspeed", "t.py"], None),
    ],
)
def test_the_configuration_is_found_in_the_command(words: list[str], found: str | None) -> None:
    assert deepspeed_config_of(words) == found


def test_a_flag_without_its_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="--deepspeed_config"):
        deepspeed_config_of(["deepspeed", "t.py", "--deepspeed_config"])


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 11), (signal.SIGTERM, 12)])
def test_signals_reach_the_job_once(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """A job that counts signals, under a launcher in a process of its own."""
    job = _job(
        tmp_path,
        "import signal, sys, time\n"
        "for number, code in ((signal.SIGINT, 11), (signal.SIGTERM, 12)):\n"
        "    signal.signal(number, lambda *_, code=code: sys.exit(code))\n"
        "print('ready', flush=True)\n"
        "for _ in range(1200):\n"  # pause() would miss a signal that comes just before it
        "    time.sleep(0.05)\n",
    )
    ours = (
        "import os, sys; from perseus_ds.cli.job.run import launch;"
        " sys.exit(launch(sys.argv[1:], os.environ))"
    )
    with subprocess.Popen([sys.executable, "-c", ours, *job], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.send_signal(number)
        assert launcher.wait(timeout=30) == code


def test_an_end_by_signal_is_128_more(tmp_path: Path) -> None:
    job = _job(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert launch(job, os.environ) == 128 + signal.SIGKILL


def test_signal_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    launch(_job(tmp_path, ""), os.environ)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_follower_waits_for_the_rest_of_a_line_and_survives_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = Follower(path)
    assert list(follower.fresh()) == []
    path.write_text('{"event": "a"}\n{"event": ')
    assert list(follower.fresh()) == [{"event": "a"}]
    with path.open("a") as file:
        file.write('"b"}\nnot json\n[1]\n')
    assert list(follower.fresh()) == [{"event": "b"}]
    path.write_text('{"event": "c"}\n')
    assert list(follower.fresh()) == [{"event": "c"}]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"event": "running", "line": "plan 3"}, "plan 3"),
        ({"event": "disabled", "reason": "lost"}, "lost"),
        ({}, "?"),
    ],
)
def test_events_in_words(event: dict[str, object], words: str) -> None:
    assert words in in_words(event)


def test_a_journal_that_is_a_pipe_is_not_waited_for_and_damage_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert list(Follower(tmp_path / "pipe").fresh()) == []
    journal = tmp_path / "events.jsonl"
    follower = Follower(journal)
    damaged = ["[1]", "3", '{"event": ["a"]}', '{"event": NaN}', "[" * 50_000, '{"a": 1}']
    journal.write_text("\n".join([*damaged, '{"event": "planned"}', ""]))
    assert [event["event"] for event in follower.fresh()] == ["planned"]
