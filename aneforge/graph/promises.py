"""What an input of a graph promises about its numbers."""

from __future__ import annotations

from aneforge.graph.tensor import Tensor


def promised_range(port: Tensor) -> tuple[float, float] | None:
    """Between which numbers an input lies: bytes, or what its ``max_abs`` says; None where nobody bounded it."""
    if port.dtype == "uint8":
        return 0.0, 255.0
    most = port.attrs.get("max_abs")
    return None if most is None else (-float(most), float(most))
