"""Plans that correct themselves: made by draws, looked up while they run."""
