"""How long a stage's forward and backward take on a simulated GPU."""

import pytest

from perseus_ds.device import SimulatedSettings
from perseus_ds.errors import ConfigError
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
    with pytest.raises(ConfigError, match="forward_s has 2 entries and the job 3 stages"):
        works_of({0: 1.0, 1: 1.0, 2: 1.0}, settings)


def test_a_split_backward_is_two_halves_of_a_whole_one() -> None:
    work = works_of({0: 1.0}, SimulatedSettings())[0]
    halves = [work.of(kind).seconds for kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)]
    assert halves[0] == halves[1]
    assert sum(halves) == pytest.approx(work.of(Kind.BACKWARD).seconds)
