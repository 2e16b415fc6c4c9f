"""What would keep a job from training with the plugin is said before it starts."""

from pathlib import Path

import pytest

from perseus_ds.cli.job_config import read_job_config
from perseus_ds.errors import ConfigError


    with pytest.raises(ConfigError, match=r"simulated\.noise: got 7"):
        read_job_config(file, {}, deepspeed_version=None)
