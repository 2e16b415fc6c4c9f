"""Between a profile and the solver: translation, kinds of plans, what is done to solved ones."""
