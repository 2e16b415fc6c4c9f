"""Between a profile and the solver: the problem, one file a strategy, what is done to solved plans."""
