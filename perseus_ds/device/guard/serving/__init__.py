"""In the guard: one client served, its requests written, its end answered by a restored clock."""
