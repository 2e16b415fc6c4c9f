"""Stragglers that are known in advance: told by files that the job looks at."""
