"""Who may take which GPU, and how low its clock may go."""

import pytest

from perseus_ds.errors import ConfigError, DevicePermissionError
from perseus_ds.guard.policy import Peer, Policy
from perseus_ds.guard.rules import rule_of

ALICE = Peer(pid=10, uid=1000, gid=100, cgroup="/kubepods/pod1")


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("gpus=*", True),
        ("user=1000 gpus=*", True),
        ("user=1001 gpus=*", False),
        ("gpus=GPU-1,GPU-2", True),
        ("gpus=GPU-2", False),
        ("cgroup=/kubepods gpus=*", True),
        ("cgroup=/kubepods/pod1 gpus=*", True),
        ("cgroup=/kubepods/pod gpus=*", False),
        ("user=1000 cgroup=/other gpus=*", False),
        ("gpus=own", False),
    ],
)
def test_a_rule_allows_what_it_says(rule: str, *, allowed: bool) -> None:
    policy = Policy((rule_of(rule),))
    if allowed:
        policy.check(ALICE, "GPU-1")
    else:
        with pytest.raises(DevicePermissionError, match="control GPU-1"):
            policy.check(ALICE, "GPU-1")


def test_own_gpus_are_those_that_the_peer_may_open_and_without_rules_nobody_may() -> None:
    policy = Policy((rule_of("user=1000 gpus=own"),))
    policy.check(ALICE, "GPU-1", owns=lambda: True)
    with pytest.raises(DevicePermissionError):
        policy.check(ALICE, "GPU-2", owns=lambda: False)
    with pytest.raises(DevicePermissionError):
        Policy().check(ALICE, "GPU-1")


def test_who_is_no_rules_business_is_known_before_it_says_a_word() -> None:
    policy = Policy((rule_of("user=1001 gpus=*"), rule_of("cgroup=/other gpus=own")))
    with pytest.raises(DevicePermissionError, match="any GPU"):
        policy.check_connection(ALICE)
    policy.check_connection(Peer(pid=10, uid=1001, gid=100))
    policy.check_connection(Peer(pid=10, uid=7, gid=7, cgroup="/other/pod"))


@pytest.mark.parametrize(("asked_mhz", "set_mhz"), [(1200, 1200), (900, 900), (210, 900)])
def test_below_the_floor_the_lowest_allowed_clock_is_set(asked_mhz: int, set_mhz: int) -> None:
    assert Policy(floor_mhz=890).clamped_mhz(asked_mhz, (1410, 1200, 900, 210)) == set_mhz


@pytest.mark.parametrize(
    "text", ["", "user=1000", "gpus", "gpus=", "gpu=*", "gpus=* gpus=*", "user=no-such-user-here gpus=*"]
)
def test_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="allow: "):
        rule_of(text)
