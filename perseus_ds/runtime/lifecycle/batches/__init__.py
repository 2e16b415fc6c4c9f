"""Batches of several sizes in one job: each its own schedule and plan, all one profile."""
