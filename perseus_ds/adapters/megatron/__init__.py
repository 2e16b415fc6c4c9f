"""megatron-core's pipeline schedules: Megatron-LM, NeMo, Megatron-Bridge."""
