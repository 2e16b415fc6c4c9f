"""What shows that a plan is what it says: recomputed, bounded by another road, doubted, put into words."""
