"""What shows that a plan is what it states: recomputed, bounded by another road, doubted, put into words."""
