"""What a block asks for and cannot have here: reported before a job profiles, by every way in alike.

Called by `perseus-ds doctor` and `perseus-ds run` on the host that they run on, and by a job on rank 0.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from perseus_ds.config import MetricsSettings, PerseusConfig
from perseus_ds.device.simulated import simulated_settings
from perseus_ds.errors import ConfigError
from perseus_ds.kernels import read_trace
from perseus_ds.plan.timelines import read_timelines


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
            read_trace(Path(trace))
    _check_run_dir(Path(config.run_dir))
    if config.metrics.enabled and (refusal := _missing(config.metrics)) is not None:
        raise refusal
    if config.objective.timelines is not None:
        read_timelines(Path(config.objective.timelines))


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


def _missing(settings: MetricsSettings) -> ConfigError | None:
    """Name a package that the settings need and that is not installed; None where all are."""
    needs = (
        ("port", settings.port, "prometheus_client", "metrics"),
        ("otlp", settings.otlp, "opentelemetry", "otlp"),
    )
    for key, value, package, extra in needs:
        if value is not None and importlib.util.find_spec(package) is None:
            return ConfigError(
                f"perseus.metrics.{key} needs {package}, which is not installed",
                hint=f"pip install 'perseus_ds[{extra}]'",
            )
    return None
