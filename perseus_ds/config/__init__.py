"""The ``perseus`` block: its keys (`settings`), and how it is read and checked (`load`)."""

from perseus_ds.config.load import (
    ENABLED_BY_FILE,
    FLAGS,
    is_enabled,
    load,
    parse,
    read_block,
    read_deepspeed_json,
    read_source,
    refuse_two_blocks,
    resolved,
    text_digest,
)
from perseus_ds.config.settings import (
    AUTOMATIC,
    AuditSettings,
    MetricsSettings,
    Mode,
    Objective,
    PerseusConfig,
    Policy,
    ProfileSettings,
    StragglerSettings,
)

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
    "is_enabled",
    "load",
    "parse",
    "read_block",
    "read_deepspeed_json",
    "read_source",
    "refuse_two_blocks",
    "resolved",
    "text_digest",
]
