"""The time-cost frontier of activities with options on a graph: exact, discretised, certified."""
