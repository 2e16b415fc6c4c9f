"""Which device of the vendor's library is torch's."""

from types import SimpleNamespace

import pytest

from perseus_ds.runtime.attach import address_of

PCI = {"pci_domain_id": 1, "pci_bus_id": 0xC1, "pci_device_id": 0}


@pytest.mark.parametrize(
    ("numbers", "hip", "address"),
    [
        (PCI, False, ("GPU-ab", None)),
        (PCI, True, (None, "0001:c1:00.0")),
        ({}, True, ("GPU-ab", None)),
    ],
)
def test_on_hip_a_device_is_found_by_its_bus(
    numbers: dict[str, int], *, hip: bool, address: tuple[str | None, str | None]
) -> None:
    assert address_of(SimpleNamespace(uuid="ab", **numbers), hip=hip) == address
