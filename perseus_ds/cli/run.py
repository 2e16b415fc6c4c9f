"""Start a training job with the plugin's flags set.

What stands after `--` is the job as you would start it: `perseus-ds run --mode profile -- deepspeed
train.py --deepspeed_config ds.json`. Where the framework has no JSON of its own, `--config` names a
file with the block, as `PERSEUS_CONFIG` does: `perseus-ds run --config perseus.json -- torchrun
pretrain_gpt.py ...`. First the start-up hook and the block are checked: the one of `--config`, or of
the DeepSpeed JSON behind `--deepspeed_config`, Hugging Face's `--deepspeed` or Accelerate's
`--deepspeed_config_file`. What would be refused in training is refused here. Then the job takes the
place of this process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import get_args

from perseus_ds.cli.job_config import hook_status, read_block_file, read_job_config
from perseus_ds.cli.output import log_stderr
from perseus_ds.config import ENABLED_BY_FILE, Mode
from perseus_ds.config.settings import DeviceSetting
from perseus_ds.errors import ConfigError, EngineError

_NAMES_JSON = ("--deepspeed_config", "--deepspeed-config", "--deepspeed_config_file", "--deepspeed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds run``."""
    parser.usage = "%(prog)s [-h] [--config C] [--mode M] [--device D] [--run-dir R] -- JOB"
    parser.add_argument(
        "--config", metavar="C", help="a file with the perseus block, where the job has no DeepSpeed JSON"
    )
    parser.add_argument("--mode", choices=get_args(Mode), help="in place of the block's mode")
    parser.add_argument("--device", choices=get_args(DeviceSetting), help="in place of the block's device")
    parser.add_argument("--run-dir", metavar="R", help="in place of the block's run_dir")
    parser.add_argument(
        "job", nargs=argparse.REMAINDER, metavar="JOB", help="the command to start, as you would without us"
    )


def run(options: argparse.Namespace) -> int:
    """Check, and become the job; returns only where that cannot be started."""
    flags = {
        ENABLED_BY_FILE: options.config,
        "PERSEUS_MODE": options.mode,
        "PERSEUS_DEVICE": options.device,
        "PERSEUS_RUN_DIR": options.run_dir,
    }
    job, environment = checked_job(options.job, flags)
    try:
        os.execvpe(job[0], job, environment)  # noqa: S606  # the user's own command
    except OSError as error:
        raise EngineError(f"cannot start {job[0]}: {error.strerror}") from error


def checked_job(words: Sequence[str], flags: Mapping[str, str | None]) -> tuple[list[str], dict[str, str]]:
    """Return the command behind ``--`` and its environment, once hook and block are checked.

    Raises:
        PerseusError: there is no command, training would refuse the block, or would not load the plugin.
    """
    job = list(words[1:] if words[:1] == ["--"] else words)
    if not job:
        raise ConfigError("no job to run", hint="perseus-ds run -- deepspeed train.py ...")
    environment = dict(os.environ) | {name: value for name, value in flags.items() if value is not None}
    hook = hook_status(environment)
    if not hook.armed:
        raise EngineError(f"the job would not load the plugin: {hook.reason}", hint=hook.remedy)
    source = deepspeed_json_of(job)
    if source is None:
        if file := environment.get(ENABLED_BY_FILE):
            read_block_file(file, environment)
        else:
            log_stderr("no block was checked: the command names no DeepSpeed JSON, and there is no --config")
        return job, environment
    config = read_job_config(source, environment, deepspeed_version=hook.deepspeed_version)
    if config.perseus is None:
        raise ConfigError(
            f"{config.name} does not ask for the plugin",
            hint='add "perseus": {"enabled": true}, or start it plainly',
        )
    if config.refusal is not None:
        raise config.refusal
    for finding in config.findings:
        log_stderr(str(finding))
    return job, environment


def deepspeed_json_of(job: Sequence[str]) -> str | None:
    """Find the DeepSpeed JSON, a file's name or base64, that a job's command line names.

    Elsewhere than with Hugging Face ``--deepspeed`` is a switch without a value.
    """
    for word, following in zip(job, [*job[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        named = value if equals else following
        # Path.is_file raises where a word is too long for a name.
        is_file = named.endswith(".json") or os.path.isfile(named)  # noqa: PTH113
        if flag in _NAMES_JSON and (is_file or (named and flag != "--deepspeed")):
            return named
    return None
