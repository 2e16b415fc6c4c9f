"""One iteration on a time axis: lanes, the longest path, energy by cause, and the trace file."""
