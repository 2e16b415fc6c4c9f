"""Plans that are the relaxed optimum itself: a few activities do their work at two options in turn."""
