"""What a job reports: event log, scalars, conflicts, stragglers, files."""
