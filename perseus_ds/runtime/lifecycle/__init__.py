"""From the first iteration to the last: start, phases, session, shutdown."""
