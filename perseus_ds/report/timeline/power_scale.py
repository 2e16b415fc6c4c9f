"""Power as colour: one scale for all panels, so that equal ink is equal power."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize, to_hex

from perseus_ds.run_directory import RecordedIteration

_MAP = "magma_r"  # perceptually uniform; pale is little power, dark is much
_DARK = 0.55  # relative luminance below which white text reads better


@dataclass(frozen=True, slots=True)
class PowerScale:
    """The watts of the palest and of the darkest colour."""

    lowest_w: float
    highest_w: float

    def colour(self, power_w: float) -> str:
        """Return the colour as ``#rrggbb``."""
        red, green, blue = self._rgb(power_w)
        return to_hex((red, green, blue))

    def ink(self, power_w: float) -> str:
        """Return the colour for text on ``colour``."""
        red, green, blue = self._rgb(power_w)
        return "white" if 0.30 * red + 0.59 * green + 0.11 * blue < _DARK else "#1c2430"

    def mappable(self) -> ScalarMappable:
        """Return what a colour bar is drawn from."""
        return ScalarMappable(Normalize(self.lowest_w, self.highest_w), _map())

    def _rgb(self, power_w: float) -> tuple[float, float, float]:
        share = (power_w - self.lowest_w) / (self.highest_w - self.lowest_w)
        red, green, blue, _ = _map()(min(max(share, 0.0), 1.0))
        return float(red), float(green), float(blue)


def power_scale(timelines: Iterable[RecordedIteration]) -> PowerScale:
    """Span all powers, from a little below waiting to the highest of any instruction."""
    timelines = list(timelines)
    waiting_w = [timeline.blocking_power_w for timeline in timelines]
    working_w = [span.power_w for t in timelines for span in t.spans if span.power_w is not None]
    lowest_w, highest_w = min(waiting_w + working_w), max(waiting_w + working_w)
    return PowerScale(0.8 * lowest_w, highest_w + 0.02 * (highest_w - lowest_w) + 1e-9)


@cache
def _map() -> Colormap:
    """Leave out the nearly black end: numbers and edges must be seen on it."""
    return ListedColormap(colormaps[_MAP](np.linspace(0.02, 0.82, 256)))
