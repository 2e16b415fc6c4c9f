"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long an example takes is the machine's business: no test judges a wall clock.
settings.register_profile("perseus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("perseus")
