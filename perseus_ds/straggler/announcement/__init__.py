"""Stragglers that are known in advance: announced by files that the job looks at."""
