"""Names that existing code imports: ``from aneforge.einsum import EinsumUnsupported, einsum``.

``af.einsum`` stays the function when this module is imported: the package sees to it.
"""

from __future__ import annotations

from aneforge.errors import EinsumUnsupported
from aneforge.graph.ops.blocks import einsum

__all__ = ["EinsumUnsupported", "einsum"]
