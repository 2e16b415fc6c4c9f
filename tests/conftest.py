"""What holds for every test."""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("perseus_ds.testing")  # its assertions are ours: show what they compared

# How long an example takes is the machine's business: no test judges a wall clock.
settings.register_profile("perseus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("perseus")
