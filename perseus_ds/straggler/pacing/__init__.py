"""Each replica paced to the longest of the same iteration, as far as it is known how long that will be."""

from perseus_ds.straggler.pacing.forecast import Forecast, Foretold
from perseus_ds.straggler.pacing.outlook import Outlook
from perseus_ds.straggler.pacing.paced_iteration import PacedIteration
from perseus_ds.straggler.pacing.pacing import Pacing
from perseus_ds.straggler.pacing.progress_marks import ProgressMarks

__all__ = ["Forecast", "Foretold", "Outlook", "PacedIteration", "Pacing", "ProgressMarks"]
