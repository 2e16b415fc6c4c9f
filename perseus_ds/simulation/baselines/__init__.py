"""What others do with the same measurements, each from its paper's description, priced alike."""

from perseus_ds.simulation.baselines.envpipe import envelope, envpipe_balanced, envpipe_greedy
from perseus_ds.simulation.baselines.instance import Choices, Instance, instance_of
from perseus_ds.simulation.baselines.maximum import all_maximum
from perseus_ds.simulation.baselines.price import Priced, price, saving_pct
from perseus_ds.simulation.baselines.published import published_perseus
from perseus_ds.simulation.baselines.zeus import uniform_clock, zeus_global, zeus_per_stage

__all__ = [
    "Choices",
    "Instance",
    "Priced",
    "all_maximum",
    "envelope",
    "envpipe_balanced",
    "envpipe_greedy",
    "instance_of",
    "price",
    "published_perseus",
    "saving_pct",
    "uniform_clock",
    "zeus_global",
    "zeus_per_stage",
]
