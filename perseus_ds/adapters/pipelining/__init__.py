"""The pipeline schedules of torch.distributed.pipelining."""
