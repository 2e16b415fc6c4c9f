"""How a GPU changes its clock: as measured on it, and the one model that follows."""
