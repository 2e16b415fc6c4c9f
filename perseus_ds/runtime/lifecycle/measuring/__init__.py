"""What a job measures of itself: clock changes, time and energy per clock, the loads of its microbatches."""
