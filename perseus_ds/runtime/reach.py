"""Address of this host that other hosts of a job can reach; for ranks and for `perseus-ds doctor`.

Gloo's own choice is the address of the host's name, which may not resolve, or lead elsewhere. The job's
key-value store is the one thing that every rank reaches in any case.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

VARIABLE = "GLOO_SOCKET_IFNAME"
_ANY_PORT = 9  # a datagram socket that is connected sends nothing


@dataclass(frozen=True, slots=True)
class Reach:
    """Address at which this rank listens: ``interface``, or ``address``.

    Neither: nothing better is known than what gloo chooses. ``why`` is one line where the choice is not the
    one that gloo would make; else empty.
    """

    interface: str = ""
    address: str = ""
    why: str = ""

    @property
    def is_local(self) -> bool:
        """Return whether no other host can reach the address."""
        return bool(self.address) and ipaddress.ip_address(self.address).is_loopback


def reach_of(master: str, environment: Mapping[str, str] = os.environ) -> Reach:
    """Choose where this rank listens; ``master`` is the host of the job's key-value store, "" if unknown.

    The first interface that ``GLOO_SOCKET_IFNAME`` names is taken. Without it, and where it lists others than
    this host's (a pattern of NCCL's, for example), it is the address that routes to ``master``.
    """
    wanted = environment.get(VARIABLE, "")
    present = [name for _, name in socket.if_nameindex()]
    named = wanted.split(",")
    if set(named) <= set(present):
        return Reach(interface=named[0])
    if wanted:
        address = route_to(master)
        return Reach(
            address=address,
            why=f"{VARIABLE}={wanted} lists others than this host's interfaces ({', '.join(present)}): "
            f"control traffic uses {address or 'the address of its name'}",
        )
    return towards(master)


def towards(host: str) -> Reach:
    """Listen at the address that leads to another host."""
    reach = Reach(address=route_to(host))
    if not reach.address or reach.is_local:
        return reach
    why = f"control traffic uses {reach.address}, the way to {host} ({VARIABLE} names another interface)"
    return replace(reach, why=why)


def route_to(host: str) -> str:
    """This host's own address on the way to another host; "" where there is no way. Sends nothing.

    Source: ip(7), "connect on a datagram socket"; the kernel looks the route up and binds the source address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as asking:
            asking.connect(address)
            return str(asking.getsockname()[0])
    except OSError:
        return ""
