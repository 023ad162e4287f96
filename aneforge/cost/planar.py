"""The time of everything that goes element by element, and of native layers that the engine takes whole."""

from __future__ import annotations

from aneforge.cost.rates import Constants
from aneforge.cost.work import NORMS, Work

__all__ = ["attention_us", "planar_us"]

_MOVES = ("concat", "pixel_shuffle", "max_pool", "avg_pool")


def planar_us(work: Work, known: Constants) -> float:
    shared = known.shared
    if work.kind in NORMS:
        factor = shared["reduce_sum" if work.kind == "l2_norm" else work.kind]
        full = work.elements / (work.elements + shared["small_norm"])  # small ones are all but free
        return work.elements * full * factor / known.chip["norms"]
    if work.kind == "argmax":
        return shared["ranked_start"]
    if work.kind == "topk":
        return shared["ranked_start"] + max(work.rows - 1, 0) * shared["ranked_row"]
    factor = 1.0
    if work.kind == "transpose":
        factor = shared["transpose"]
    elif work.kind in _MOVES:
        factor = shared["move"]
    elif work.operands > 1:
        alone = known.engines > 1 and work.elements < shared["shared_elements"]
        factor = shared["second_operand"] * (known.engines if alone else 1)
    return work.elements * factor / known.chip["planar"]


def attention_us(work: Work, known: Constants) -> float:
    """The native attention layer: head by head, at a rate of its own (four published calls of one chip)."""
    return work.rows * known.shared["attention_head"] + work.macs / known.shared["attention_macs"]
