"""PyTorch: modules and exported programs (``.pt2``)."""

from __future__ import annotations

from aneforge.graph.ops.host import register_language

register_language("torch", "aneforge.frontends.torch.host")
