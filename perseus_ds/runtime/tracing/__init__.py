"""What a job's instructions are made of: a few iterations under PyTorch's profiler."""
