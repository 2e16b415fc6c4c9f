"""What others do with the same measurements, each from its paper's description, priced alike."""

from baselines.envpipe import envelope, envpipe_balanced, envpipe_greedy
from baselines.instance import Choices, Instance, instance_of
from baselines.maximum import all_maximum
from baselines.price import Priced, price, saving_pct
from baselines.published import published_perseus
from baselines.zeus import uniform_clock, zeus_global, zeus_per_stage

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
