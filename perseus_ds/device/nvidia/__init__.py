"""NVIDIA GPUs: through NVML, and through Zeus's daemon."""
