"""Checks of what a block asks for and cannot have here, and the run directory that a job gets.

`perseus-ds doctor` and `perseus-ds run` call `check_usable` on the host that they run on; a job calls it and
`run_directory_of` on rank 0.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

from perseus_ds.config import PerseusConfig
from perseus_ds.device.simulated.settings import simulated_settings
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded
from perseus_ds.run_directory.paths import claim, write_whole

_MOST_BYTES = 1 << 30


def check_usable(config: PerseusConfig) -> None:
    """Refuse files that are absent, or contradict it, and a run directory that cannot be one.

    Raises:
        PerseusError: naming the key or the file.
    """
    if config.mode == "off":
        return
    if config.device == "simulated":
        trace = simulated_settings(config.simulated).kernels
        if trace is not None:
            from perseus_ds.kernels.trace import KERNEL_TRACES  # noqa: PLC0415  # the solver, not for `doctor`

            KERNEL_TRACES.read(Path(trace))
    if not _only_runs_a_plan_of(config):
        _check_run_dir(Path(config.run_dir))
    if config.metrics.enabled and importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError(
            "perseus.metrics.enabled needs prometheus_client, which is not installed",
            hint="pip install 'perseus_ds[metrics]'",
        )
    if config.objective.timelines is not None:
        from perseus_ds.plan.record import read_timelines  # noqa: PLC0415  # the solver, not for `doctor`

        read_timelines(Path(config.objective.timelines))


def run_directory_of(config: PerseusConfig) -> tuple[Path, str]:
    """Lock the directory that this job writes to; return it, and why it is not the block's if it is not.

    The profile and the plans of the block's directory are used in both cases. Paths are absolute: a program
    may change its working directory while it trains.

    Raises:
        ConfigError: too many jobs have the block's directory.
    """
    asked = Path(config.run_dir).absolute()
    if _only_runs_a_plan_of(config):
        path = _elsewhere(asked)
        _copy_plans(asked, path, replace=True)
        return path, f"{asked} cannot be written to: its plan is used, and this job's files are in {path}"
    try:
        path, owner = claim(asked)
    except OSError as error:
        return asked, f"{asked} is not locked, another job may write there as well: {error.strerror}"
    if owner is None:
        return path, ""
    _copy_plans(asked, path, replace=config.mode == "run")
    return path, (
        f"{asked} is in use by process {owner.pid} on {owner.host}: this job's files are in {path}; "
        "perseus.run_dir or PERSEUS_RUN_DIR names another directory"
    )


def _only_runs_a_plan_of(config: PerseusConfig) -> bool:
    """Return whether the run directory only hands out a plan to run, and cannot be written to."""
    folder = Path(config.run_dir)
    return config.mode == "run" and _why_not(folder) is not None and folder.is_dir()


def _elsewhere(asked: Path) -> Path:
    """A directory of the same name among the runs of the working directory, else a temporary one."""
    try:
        return claim(Path("perseus_runs", asked.name or "run").absolute())[0]
    except OSError:
        return Path(tempfile.mkdtemp(prefix="perseus-"))


def _copy_plans(asked: Path, path: Path, *, replace: bool) -> None:
    """Copy what a job may begin with."""
    for file in (*asked.glob("profile.*json"), *asked.glob("plan.*json")):
        try:
            if replace or not (path / file.name).exists():
                content = read_bounded(file, most_bytes=_MOST_BYTES)
                write_whole(path / file.name, content)
        except (OSError, PerseusError):
            continue  # the job makes its own, or reports that there is none


def _check_run_dir(run_dir: Path) -> None:
    """Look at the folder, or at where it would be made."""
    for folder in (run_dir, *run_dir.parents):
        why_not = _why_not(folder)
        if why_not:
            raise ConfigError(f"perseus.run_dir is {str(run_dir)!r:.200}: {why_not}", hint="name a folder")
        if why_not is None:
            return


def _why_not(folder: Path) -> str | None:
    """Explain why a job cannot write to a folder; None where it can, empty if there is no folder yet."""
    try:
        if not folder.is_dir() and os.path.lexists(folder):
            return f"{folder} is not a folder"
        if not folder.exists():
            return ""
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written to"
