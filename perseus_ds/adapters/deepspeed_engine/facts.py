"""What an engine's configuration and the imported DeepSpeed state, without importing any of DeepSpeed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import cast

from perseus_ds.adapters.required_names import Release
from perseus_ds.config import ENABLED_BY_FILE, is_enabled

TESTED_DEEPSPEED = ("0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.8")
"""Releases on which engines, with a pipeline and without, were run with us attached."""


def deepspeed_version() -> str:
    """The release that is imported, which a PYTHONPATH can make another than the installed one."""
    imported = getattr(sys.modules.get("deepspeed"), "__version__", None)
    return str(imported).strip() if imported else version("deepspeed")


def deepspeed_release() -> Release:
    """The same, beside those tested."""
    return Release(f"DeepSpeed {deepspeed_version()}", TESTED_DEEPSPEED)


def raw_config(engine: object) -> Mapping[str, object]:
    """The DeepSpeed configuration as the user wrote it; empty where the engine keeps none.

    An unknown top-level block passes DeepSpeed silently and stays in ``_config._param_dict``.
    """
    content = getattr(getattr(engine, "_config", None), "_param_dict", None)
    return cast("Mapping[str, object]", content) if isinstance(content, Mapping) else {}


def switched_on(section: object) -> bool:
    """Whether a section of the configuration has ``"enabled": true``."""
    return isinstance(section, dict) and section.get("enabled", False) is True


def is_pipeline(engine: object) -> bool:
    """Whether an engine runs a pipeline: DeepSpeed's own class for it, or one below it."""
    return any(kind.__name__ == "PipelineEngine" for kind in type(engine).__mro__)


@dataclass(frozen=True, slots=True)
class AskingEngine:
    """An engine that asks for us; ``block`` is None where ``PERSEUS_CONFIG`` names it."""

    content: Mapping[str, object]
    block: object

    @property
    def tunes_itself(self) -> bool:
        """Whether DeepSpeed's autotuning is on, which measures the job itself."""
        return switched_on(self.content.get("autotuning"))


def asked(engine: object, config: Mapping[str, object] | None) -> AskingEngine | None:
    """Return what an engine asks for: in code, in its JSON, by ``PERSEUS_CONFIG``; None where nobody does."""
    content = dict(raw_config(engine))
    if config is not None:
        content["perseus"] = {"enabled": True, **config}
    if not is_enabled(content) and not os.environ.get(ENABLED_BY_FILE):
        return None
    return AskingEngine(content, content.get("perseus"))
