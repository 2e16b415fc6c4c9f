"""What a job tells: event log, scalars, conflicts, stragglers, files."""
