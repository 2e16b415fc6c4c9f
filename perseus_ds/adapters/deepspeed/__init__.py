"""DeepSpeed's pipeline engine."""
