"""Models that do not fit on the engine whole: which parts run there, which on the host, and what crosses between."""

from __future__ import annotations

from aneforge.regions.partition import Partition, Partitions, partition
from aneforge.regions.split import Crossing, Region

__all__ = ["Crossing", "Partition", "Partitions", "Region", "partition"]
