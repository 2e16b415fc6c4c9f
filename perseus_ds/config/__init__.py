"""The ``perseus`` block of the DeepSpeed JSON: read, checked, frozen."""

from perseus_ds.config.automatic import AUTOMATIC, auto_of, shown
from perseus_ds.config.block_file import ENABLED_BY_FILE, read_block, refuse_two_blocks, text_digest
from perseus_ds.config.given import given_config
from perseus_ds.config.load import FLAGS, is_enabled, load, parse, read_deepspeed_json, resolved
from perseus_ds.config.ranges import literals_of
from perseus_ds.config.settings import (
    AuditSettings,
    MetricsSettings,
    Mode,
    Objective,
    PerseusConfig,
    Policy,
    ProfileSettings,
    StragglerSettings,
)
from perseus_ds.config.strict import record_of

__all__ = [
    "AUTOMATIC",
    "ENABLED_BY_FILE",
    "FLAGS",
    "AuditSettings",
    "MetricsSettings",
    "Mode",
    "Objective",
    "PerseusConfig",
    "Policy",
    "ProfileSettings",
    "StragglerSettings",
    "auto_of",
    "given_config",
    "is_enabled",
    "literals_of",
    "load",
    "parse",
    "read_block",
    "read_deepspeed_json",
    "record_of",
    "refuse_two_blocks",
    "resolved",
    "shown",
    "text_digest",
]
