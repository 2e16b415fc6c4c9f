"""What would keep a job from training with the plugin is said before it starts."""

from pathlib import Path

import pytest

from perseus_ds.cli.job.job_config import read_job_config
from perseus_ds.errors import ConfigError


def test_a_wrong_simulated_block_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"perseus": {"enabled": true, "device": "simulated", "simulated": {"noise": 7}}}')
    with pytest.raises(ConfigError, match=r"simulated\.noise: got 7"):
        read_job_config(file, {}, deepspeed_version=None)
