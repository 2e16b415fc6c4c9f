"""The ``perseus`` block of an engine: given in code, in its JSON, or named by ``PERSEUS_CONFIG``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from perseus_ds.adapters.deepspeed_engine.facts import raw_config, switched_on
from perseus_ds.config import ENABLED_BY_FILE, is_enabled


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
    """Return what an engine asks for, None where nobody does."""
    content = dict(raw_config(engine))
    if config is not None:
        content["perseus"] = {"enabled": True, **config}
    if not is_enabled(content) and not os.environ.get(ENABLED_BY_FILE):
        return None
    return AskingEngine(content, content.get("perseus"))
