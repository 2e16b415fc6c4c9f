"""Start a training job with the plugin's flags set, and show its progress.

What stands after `--` is the job as you would start it: `perseus-ds run --mode profile -- deepspeed
train.py --deepspeed_config ds.json`. The JSON is also found behind Hugging Face's `--deepspeed` and
in Accelerate's `--config_file`, the block in the YAML of gpt-neox's `deepy.py`. Where the framework
has no JSON of its own, `--config` names a file with the block, as `PERSEUS_CONFIG` does: `perseus-ds
run --config perseus.json -- torchrun pretrain_gpt.py ...`. Before the job starts, the start-up hook
and the block are checked; what would be refused in training is refused here. Signals are passed on to
the job, and its exit code is returned. Progress goes to standard error, a line per step; the job's
own output is left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

from perseus_ds.cli.job.follow import Follower
from perseus_ds.cli.job.job_config import read_block_file, read_job_config, read_yaml_block
from perseus_ds.cli.job.named_config import deepspeed_config_of, neox_block_of
from perseus_ds.cli.machine.hook_status import HookStatus, hook_status
from perseus_ds.cli.output import remark
from perseus_ds.cli.quantity import one_of, words_of
from perseus_ds.config import ENABLED_BY_FILE, Mode, PerseusConfig
from perseus_ds.config.settings import DeviceSetting
from perseus_ds.errors import ConfigError, EngineError
from perseus_ds.run_directory import RunDirectory

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_THE_KEYBOARD = {signal.SIGINT, signal.SIGQUIT}
_BY_SIGNAL = 128  # as shells number an end by signal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds run``."""
    parser.usage = "%(prog)s [-h] [--config C] [--mode M] [--device D] [--run-dir R] -- JOB"
    parser.add_argument(
        "--config", metavar="C", help="a file with the perseus block, where the job has no DeepSpeed JSON"
    )
    parser.add_argument(
        "--mode", type=one_of(Mode), metavar=words_of(Mode), help="in place of the block's mode"
    )
    parser.add_argument(
        "--device",
        type=one_of(DeviceSetting),
        metavar=words_of(DeviceSetting),
        help="in place of the block's device",
    )
    parser.add_argument("--run-dir", metavar="R", help="in place of the block's run_dir")
    parser.add_argument(
        "job", nargs=argparse.REMAINDER, metavar="JOB", help="the command to start, as you would without us"
    )


def run(options: argparse.Namespace) -> int:
    """Check, start, follow, return the job's exit code."""
    job = options.job[1:] if options.job[:1] == ["--"] else options.job
    if not job:
        raise ConfigError("no job to run", hint="perseus-ds run -- deepspeed train.py ...")
    environment = dict(os.environ) | _flags(options)
    hook = hook_status(environment)
    if not hook.armed:
        raise EngineError(f"the job would not load the plugin: {hook.reason}", hint=hook.remedy)
    run_dir = _run_dir(_checked(job, environment, hook), environment)
    if run_dir is None:
        remark(
            "the command names no DeepSpeed JSON, and there is no --config or --run-dir: the job runs, its "
            "progress is not shown"
        )
        return launch(job, environment)
    with Follower(RunDirectory(run_dir).events):
        return launch(job, environment)


def _flags(options: argparse.Namespace) -> dict[str, str]:
    given = {
        ENABLED_BY_FILE: options.config,
        "PERSEUS_MODE": options.mode,
        "PERSEUS_DEVICE": options.device,
        "PERSEUS_RUN_DIR": options.run_dir,
    }
    return {name: value for name, value in given.items() if value is not None}


def _checked(job: list[str], environment: Mapping[str, str], hook: HookStatus) -> PerseusConfig | None:
    """Read the job's configuration, if its command names one.

    Raises:
        PerseusError: training would refuse it, or it does not ask for the plugin.
    """
    source, file = deepspeed_config_of(job), environment.get(ENABLED_BY_FILE)
    if source is None and (neox := neox_block_of(job)) is not None:
        return read_yaml_block(*neox, environment)
    if source is None:
        return None if file is None else read_block_file(file, environment)
    config = read_job_config(source, environment, deepspeed_version=hook.deepspeed_version)
    if config.perseus is None:
        raise ConfigError(
            f"{config.name} does not ask for the plugin",
            hint='add "perseus": {"enabled": true}, or start it plainly',
        )
    if config.refusal is not None:
        raise config.refusal
    for finding in config.findings:
        remark(str(finding))
    return config.perseus


def _run_dir(config: PerseusConfig | None, environment: Mapping[str, str]) -> Path | None:
    if config is not None:
        return Path(config.run_dir)
    given = environment.get("PERSEUS_RUN_DIR")
    return Path(given) if given else None


def launch(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a child as if it had been started directly; return its exit code (128 + n after signal n).

    It gets a session of its own, so that a Ctrl-C reaches it once, through us.

    Raises:
        EngineError: there is no such program.
    """
    with _Relay() as relay:
        try:
            child = subprocess.Popen(command, env=dict(environment), start_new_session=True)  # noqa: S603  # the user's own command
        except OSError as error:
            raise EngineError(f"cannot start {command[0]}: {error.strerror}") from error
        relay.begin(child)
        code = child.wait()
    return code if code >= 0 else _BY_SIGNAL - code


class _Relay:
    """Passes signals on to a child; those that come before it is there, as soon as it is."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._pass_on) for number in _PASSED_ON}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self, child: subprocess.Popen[bytes]) -> None:
        """From now on there is somebody to pass them on to."""
        self._child = child
        for number in self._early:
            self._pass_on(number, None)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._child is None:
            self._early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            if number in _FROM_THE_KEYBOARD:
                os.killpg(self._child.pid, number)  # a terminal sends it to the whole group
            else:
                self._child.send_signal(number)
