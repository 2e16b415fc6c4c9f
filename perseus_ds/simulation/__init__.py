"""Plans run in virtual time by a whole job's clusters, and a profile for whoever has none."""
