"""The simulated block: what is refused, and how it is said."""

import pytest

from perseus_ds.device import SimulatedSettings, simulated_settings
from perseus_ds.errors import ConfigError


def test_an_empty_block_is_the_default() -> None:
    assert simulated_settings({}) == SimulatedSettings()


def test_a_list_per_stage_is_read() -> None:
    assert simulated_settings({"forward_s": [0.1, 0.2]}).forward_s == (0.1, 0.2)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"gpus": "a40"}, "simulated.gpus: unknown key (known: gpu, time, time_scale"),
        ({"gpu": "v100"}, "no GPU model 'v100' (known: a100-sxm4-80gb"),
        ({"gpu": 3}, "no GPU model 3"),
        ({"time_scale": 0}, "simulated.time_scale: got 0, expected a number > 0"),
        ({"time_scale": "fast"}, "simulated.time_scale: got 'fast'"),
        ({"noise": True}, "simulated.noise: got True"),
        ({"noise": float("nan")}, "simulated.noise: got nan"),
        ({"memory_bound": 1.5}, "expected a number >= 0 and <= 1"),
        ({"forward_s": [0.1, -1]}, "simulated.forward_s[1]: got -1"),
        ({"forward_s": 0.4}, "simulated.forward_s: got 0.4, expected a list"),
        ({"seed": 1.5}, "simulated.seed: got 1.5, expected a whole number"),
        ({"power_cap_w": -5}, "simulated.power_cap_w"),
    ],
)
def test_a_bad_value_is_named_with_its_key(block: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        simulated_settings(block)
    assert says in str(refusal.value)
