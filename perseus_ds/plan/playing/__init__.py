"""A plan on the axis of time: instructions, requests for clocks, and what both cost."""
