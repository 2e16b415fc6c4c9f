"""Whether a transfer's duration follows the clock of its sender, from what the windows of a sweep saw."""

from random import Random

import pytest

from perseus_ds.errors import ProfileError
from perseus_ds.profile import Profile
from perseus_ds.profile.following import follows_clock, lasts_times
from perseus_ds.schedule import Kind

CLOCKS_MHZ = (1980, 1800, 1620, 1440, 1260, 1080, 990)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_share_is_found_in_noise(share: float, seed: int) -> None:
    random = Random(seed)
    seen_s = [
        0.01 * lasts_times(share, clock_mhz=mhz, highest_mhz=1980) * random.gauss(1.0, 0.005)
        for mhz in CLOCKS_MHZ
    ]
    assert follows_clock(CLOCKS_MHZ, seen_s) == pytest.approx(share, abs=0.05)


def test_what_varies_by_chance_follows_nothing() -> None:
    random = Random(1)
    wrong = 0
    for _ in range(200):
        seen_s = [random.gauss(0.01, 0.001) for _ in CLOCKS_MHZ]
        wrong += follows_clock(CLOCKS_MHZ, seen_s) > 0.0
    assert wrong <= 10


def test_few_windows_and_nothing_sent_tell_nothing() -> None:
    assert follows_clock((1980, 990), (0.01, 0.02)) == 0.0
    assert follows_clock(CLOCKS_MHZ, [0.0] * len(CLOCKS_MHZ)) == 0.0


def test_a_share_beyond_all_is_refused() -> None:
    key = 0, Kind.SEND_ACTIVATION
    with pytest.raises(ProfileError, match=r"follows_clock"):
        Profile({}, fixed_s={key: 0.1}, follows={key: 1.5})
