"""What every GPU backend keeps to, as a test class that a backend's own test inherits."""

from collections.abc import Iterator

import pytest

from perseus_ds.device.gpu import EventReason, Gpu
from perseus_ds.errors import DeviceError, DeviceUnsupportedError
from perseus_ds.guard.claim import open_gpu


class GpuContract:
    """Inherit, and give a ``gpu`` fixture; override `settle` where time does not pass by itself."""

    @pytest.fixture
    def gpu(self) -> Iterator[Gpu]:
        """The device under test, fresh for every test."""
        raise NotImplementedError("a backend's test gives its own `gpu` fixture")

    def settle(self, gpu: Gpu) -> None:
        """Let the switch latency pass, and a counter period or two."""

    def test_says_which_device_it_is(self, gpu: Gpu) -> None:
        identity = gpu.identify()
        assert identity.name
        assert identity.uuid
        assert identity == gpu.identify()

    def test_lists_its_grid_from_the_highest_clock_down(self, gpu: Gpu) -> None:
        clocks_mhz = gpu.capabilities().clocks_mhz
        assert list(clocks_mhz) == sorted(set(clocks_mhz), reverse=True)
        assert gpu.capabilities().default_clock_mhz == max(clocks_mhz, default=0)

    def test_a_device_that_cannot_lock_says_why(self, gpu: Gpu) -> None:
        """Either it can, or there is a reason and a refusal."""
        able = gpu.capabilities()
        assert able.can_lock == (able.why_not is None)
        if not able.can_lock:
            with pytest.raises(DeviceError):
                gpu.lock_clock(able.default_clock_mhz)

    def test_a_locked_clock_is_achieved_after_the_latency(self, gpu: Gpu) -> None:
        for clock_mhz in self._some_clocks_mhz(gpu):
            gpu.lock_clock(clock_mhz)
            self.settle(gpu)
            achieved = gpu.achieved()
            assert achieved.clock_mhz == clock_mhz or achieved.event_reasons.spoils

    def test_the_last_of_several_requests_wins(self, gpu: Gpu) -> None:
        clocks_mhz = self._some_clocks_mhz(gpu)
        for clock_mhz in clocks_mhz * 3:
            gpu.lock_clock(clock_mhz)
        self.settle(gpu)
        assert not clocks_mhz or gpu.achieved().clock_mhz == clocks_mhz[-1]

    def test_reset_gives_the_default_clock_back(self, gpu: Gpu) -> None:
        """Also when nothing was locked, and twice."""
        for clock_mhz in self._some_clocks_mhz(gpu)[:1]:
            gpu.lock_clock(clock_mhz)
            self.settle(gpu)
        gpu.reset_clock()
        gpu.reset_clock()
        self.settle(gpu)
        achieved = gpu.achieved()
        assert achieved.clock_mhz == gpu.capabilities().default_clock_mhz or achieved.event_reasons.spoils

    def test_a_foreign_clock_is_refused_with_the_grid(self, gpu: Gpu) -> None:
        """A clock between two grid points, named together with the grid."""
        able = gpu.capabilities()
        if not able.can_lock:
            return
        with pytest.raises(DeviceUnsupportedError) as refusal:
            gpu.lock_clock(able.clocks_mhz[0] - 1)
        assert able.grid in str(refusal.value)
        self.settle(gpu)
        assert gpu.achieved().clock_mhz == able.default_clock_mhz

    def test_energy_and_time_only_grow(self, gpu: Gpu) -> None:
        if gpu.capabilities().counter_period_s is None:
            with pytest.raises(DeviceUnsupportedError):
                gpu.energy_j()
            return
        then_s, then_j = gpu.now_s(), gpu.energy_j()
        self.settle(gpu)
        assert gpu.now_s() > then_s
        assert gpu.energy_j() >= then_j

    def test_what_another_process_opens_is_this_device(self, gpu: Gpu) -> None:
        """Energy is read there, unless the device states that only this process can."""
        opened = gpu.opened_elsewhere()
        if opened is not None:
            with open_gpu(*opened) as other:
                assert other.identify().uuid == gpu.identify().uuid

    def test_event_reasons_are_known_bits(self, gpu: Gpu) -> None:
        assert gpu.achieved().event_reasons in EventReason(sum(reason.value for reason in EventReason))

    def test_closing_twice_is_closing_once(self, gpu: Gpu) -> None:
        gpu.close()
        gpu.close()

    def _some_clocks_mhz(self, gpu: Gpu) -> list[int]:
        able = gpu.capabilities()
        return [able.clocks_mhz[-1], able.clocks_mhz[len(able.clocks_mhz) // 2]] if able.can_lock else []
