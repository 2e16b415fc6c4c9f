"""The address of a host that others reach: by a variable, by name resolution, by a route."""

import socket

import pytest

from perseus_ds.runtime.reach import Reach, reach_of, route_to, towards


def test_what_gloo_can_read_is_left_to_it() -> None:
    assert reach_of("127.0.0.1", {"GLOO_SOCKET_IFNAME": "lo"}) == Reach(interface="lo")


@pytest.mark.parametrize("wanted", ["no-such-card", "^docker", "=lo", "lo,no-such-card"])
def test_a_variable_that_names_nothing_is_named_with_what_there_is(wanted: str) -> None:
    reach = reach_of("127.0.0.1", {"GLOO_SOCKET_IFNAME": wanted})
    assert reach.address == "127.0.0.1"
    assert f"GLOO_SOCKET_IFNAME={wanted}" in reach.why
    assert "lo" in reach.why


def test_a_name_that_does_not_resolve_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    reach = reach_of("127.0.0.1", {})
    assert reach == Reach(address="127.0.0.1")
    assert reach.is_local


def test_where_nothing_leads_gloo_is_left_to_choose() -> None:
    assert route_to("no-such-host.invalid") == ""
    assert towards("") == Reach()
    assert not towards("").is_local
