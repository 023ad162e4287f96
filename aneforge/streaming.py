"""Names that existing code imports: ``from aneforge.streaming import CheckpointedStack``."""

from __future__ import annotations

from aneforge.train.stack import CheckpointedStack

__all__ = ["CheckpointedStack"]
