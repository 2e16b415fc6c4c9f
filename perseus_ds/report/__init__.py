"""From a run directory to what a person reads: one HTML page, rows for a terminal, two runs compared."""

from perseus_ds.report.figures import EnergyPrices, compare
from perseus_ds.report.page import write_profile_page, write_report

__all__ = ["EnergyPrices", "compare", "write_profile_page", "write_report"]
