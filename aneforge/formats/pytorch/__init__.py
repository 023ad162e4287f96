"""PyTorch: modules and exported programs (``.pt2``)."""

from __future__ import annotations

from aneforge.graph.ops.host import Evaluate, register_language


def _evaluator() -> Evaluate:
    from aneforge.formats.pytorch.host import evaluate

    return evaluate


register_language("torch", _evaluator)
