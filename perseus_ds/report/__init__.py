"""From a run directory to what a person reads: a terminal table, one HTML page, pictures."""

from perseus_ds.report.contents.worth import EnergyPrices
from perseus_ds.report.table import table
from perseus_ds.report.write import write_report

__all__ = ["EnergyPrices", "table", "write_report"]
