"""Below an op's floor: the same graph out of ops the chip has.

:func:`retarget` walks a graph once. A native op is never touched: the very same node comes back unless something
below it changed. An op that the chip lacks is replaced by its rule; an op that no rule can help is refused with the
compiler's own words.
"""

from __future__ import annotations

from aneforge.compiler.legal.rewrites.bounds import BOUNDS, Bound
from aneforge.compiler.legal.rewrites.host import HostInput
from aneforge.compiler.legal.rewrites.registry import Rule, decomposition, decompositions
from aneforge.compiler.legal.rewrites.rejection import RejectedOp, reject_words
from aneforge.compiler.legal.rewrites.walk import Change, Retargeted, retarget

__all__ = [
    "BOUNDS",
    "Bound",
    "Change",
    "HostInput",
    "RejectedOp",
    "Retargeted",
    "Rule",
    "decomposition",
    "decompositions",
    "reject_words",
    "retarget",
]
