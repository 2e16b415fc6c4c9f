"""Perseus as published: an exponential per computation, walked down in steps of tau by minimum cuts.

Source: Chung, Gu, Jang, Meng, Bansal, Chowdhury, "Reducing Energy Bloat in Large Model Training", SOSP'24
(arXiv 2312.06902), sections 4.1 to 4.3, algorithms 1 and 2.
Readings, where the paper leaves a detail open, are those of its public artifact (ml-energy/zeus, branch
kronos); with them the artifact's frontiers of GPT-3 175B come out to the eighth digit.
"""

from baselines.published.walk import PublishedPlans, PublishedWalk, published_perseus

__all__ = ["PublishedPlans", "PublishedWalk", "published_perseus"]
