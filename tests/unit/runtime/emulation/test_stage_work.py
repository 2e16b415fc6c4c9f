"""How long a stage's forward and backward take on a simulated GPU."""

from pathlib import Path

import pytest

from perseus_ds.device.simulated.physics import KernelSequence
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import ConfigError, ProfileError
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence, write_trace
from perseus_ds.runtime.emulation import works_of
from perseus_ds.schedule import Kind


def test_work_is_in_proportion_and_the_mean_is_the_setting() -> None:
    settings = SimulatedSettings(mean_forward_s=0.4, backward_over_forward=2.0)
    works = works_of({0: 1.0, 1: 2.0, 2: 3.0}, settings)
    assert [round(works[stage].forward.seconds, 9) for stage in range(3)] == [0.2, 0.4, 0.6]
    assert works[0].backward.seconds == pytest.approx(0.4)


def test_a_stage_without_weights_still_takes_some_time() -> None:
    works = works_of({0: 0.0, 1: 2.0}, SimulatedSettings())
    assert 0 < works[0].forward.seconds < works[1].forward.seconds


def test_listed_stages_take_what_is_listed() -> None:
    settings = SimulatedSettings(forward_s=(0.1, 0.3))
    works = works_of({0: 5.0, 1: 1.0}, settings)
    assert [works[stage].forward.seconds for stage in range(2)] == [0.1, 0.3]
    with pytest.raises(ConfigError, match="forward_s"):
        works_of({0: 1.0, 1: 1.0, 2: 1.0}, settings)


def test_a_split_backward_is_two_halves_of_a_whole_one() -> None:
    work = works_of({0: 1.0}, SimulatedSettings())[0]
    halves = [work.of(kind).seconds for kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)]
    assert halves[0] == halves[1]
    assert sum(halves) == pytest.approx(work.of(Kind.BACKWARD).seconds)


def test_a_stage_is_made_of_the_kernels_of_the_trace(tmp_path: Path) -> None:
    product = KernelClass("gemm", ((4096, 2048), (2048, 4096)), "bfloat16")
    norm = KernelClass("layernorm", ((4096, 2048),), "bfloat16")
    sequences = (
        LaunchSequence(0, Kind.FORWARD, (0, 1, 0)),
        LaunchSequence(0, Kind.BACKWARD, (1, 0, 0, 0, 0)),
    )
    path = tmp_path / "trace.json"
    write_trace(KernelTrace((product, norm), sequences), path)
    settings = SimulatedSettings(kernels=str(path))
    stage = works_of({0: 1.0}, settings)[0]
    assert isinstance(stage.forward, KernelSequence)
    once, norm_once = stage.forward.kernels[:2]
    assert stage.forward.seconds == pytest.approx(2 * once.seconds + norm_once.seconds)
    assert stage.of(Kind.BACKWARD).seconds == pytest.approx(4 * once.seconds + norm_once.seconds)
    with pytest.raises(ProfileError, match="stage 1"):
        works_of({0: 1.0, 1: 1.0}, settings)
    with pytest.raises(ProfileError, match="No such"):
        works_of({0: 1.0}, SimulatedSettings(kernels=str(tmp_path / "none.json")))
    with pytest.raises(ConfigError, match="kernel trace"):
        SimulatedSettings(kernels=3)  # type: ignore[arg-type]  # as a block may have it
