"""From a run directory to what a person reads: one HTML page, rows for a terminal, two runs compared."""

from perseus_ds.report.contents.comparison import compare
from perseus_ds.report.contents.worth import EnergyPrices
from perseus_ds.report.write import write_profile_page, write_report

__all__ = ["EnergyPrices", "compare", "write_profile_page", "write_report"]
