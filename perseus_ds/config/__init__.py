"""The ``perseus`` block: its keys (`settings`), and how it is read and checked (`load`)."""

from perseus_ds.config.load import ENABLED_BY_FILE, FLAGS, is_enabled, load, parse, read_block
from perseus_ds.config.settings import Mode, Objective, PerseusConfig, ProfileSettings, StragglerSettings

__all__ = ["ENABLED_BY_FILE", "FLAGS", "is_enabled", "load", "parse", "read_block"]
__all__ += ["Mode", "Objective", "PerseusConfig", "ProfileSettings", "StragglerSettings"]
