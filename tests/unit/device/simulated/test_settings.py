"""The simulated block: what is refused, and how it is said."""

import pytest

from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.settings import SimulatedSettings, simulated_settings
from perseus_ds.errors import ConfigError


def test_an_empty_block_is_the_default_and_a_rank_has_what_is_its_own() -> None:
    assert simulated_settings({}) == SimulatedSettings()
    assert simulated_settings({"forward_s": [0.1, 0.2]}).forward_s == (0.1, 0.2)
    block = {"noise": 0.01, "ranks": {"3": {"gpu": "a40", "forward_s": [0.5]}}}
    assert simulated_settings(block) == SimulatedSettings(noise=0.01)
    assert simulated_settings(block, rank=3) == SimulatedSettings(gpu="a40", noise=0.01, forward_s=(0.5,))


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"gpus": "a40"}, "simulated.gpus: unknown"),
        ({"gpu": "v100"}, "a100-sxm4-80gb"),
        ({"gpu": 3}, "simulated.gpu: got 3"),
        ({"time_scale": 0}, "simulated.time_scale"),
        ({"time_scale": "fast"}, "'fast'"),
        ({"noise": True}, "simulated.noise"),
        ({"noise": float("nan")}, "nan"),
        ({"memory_bound": 1.5}, "equal to 1"),
        ({"forward_s": [0.1, -1]}, "simulated.forward_s[1]"),
        ({"forward_s": 0.4}, "a list"),
        ({"seed": 1.5}, "simulated.seed"),
        ({"load_terms": [0.1, 0.9]}, "simulated.load_terms"),
        ({"load_terms": [0.1, 0.9, -0.1], "mean_load": [1, 1]}, "simulated.load_terms[2]"),
        ({"load_terms": [0.1, 0.6, 0.3]}, "belong together"),
        ({"load_terms": [0.1, 0.6, 0.3], "mean_load": [0, 1]}, "simulated.mean_load[0]"),
        ({"power_cap_w": -5}, "simulated.power_cap_w"),
        ({"ranks": [1]}, "simulated.ranks"),
        ({"ranks": {"one": {"gpu": "a40"}}}, "simulated.ranks.one"),
        ({"ranks": {"1": "a40"}}, "simulated.ranks.1"),
        ({"ranks": {"1": {"gpus": "a40"}}}, "simulated.ranks.1.gpus"),
        ({"ranks": {"1": {"time": "scaled"}}}, "simulated.ranks.1.time"),
        ({"ranks": {"7": {"noise": 7}}}, "simulated.noise"),
    ],
)
def test_a_bad_value_is_named_with_its_key(block: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        simulated_settings(block)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("time_scale", [1e-9, 1e9], [0, -1]),
        ("noise", [0, 1], [-1e-9, 1.0001]),
        ("intensity", [1e-9, 2], [0, 2.0001]),
        ("switch_latency_s", [None, 0], [-1e-9]),
        ("power_cap_w", [None, 1e-9], [0]),
        ("throttle_mhz", [None, 210], [0, 209]),
    ],
)
def test_a_number_of_each_kind_has_its_range(key: str, inside: list[object], outside: list[object]) -> None:
    for value in inside:
        assert getattr(simulated_settings({key: value}), key) == value
    for value in outside:
        with pytest.raises(ConfigError, match=f"simulated.{key}: got"):
            simulated_settings({key: value})


def test_whoever_closes_a_gpu_leaves_both_clocks_at_their_highest() -> None:
    gpu = SimulatedGpu(simulated_settings({"gpu": "a40", "switch_latency_s": 0.0}), 0)
    gpu.lock_clock(gpu.capabilities().clocks_mhz[-1])
    gpu.lock_memory_clock(405)
    gpu.sleep(1.0)
    assert gpu.true_now().memory_mhz == 405
    gpu.close()
    gpu.sleep(1.0)
    assert gpu.true_now().memory_mhz == 7251
    assert gpu.achieved().clock_mhz == gpu.capabilities().default_clock_mhz
