"""How many bytes a tensor takes, on chip and in memory: one answer for the scheduler and for the layout."""

from __future__ import annotations

from aneforge.anec.ir import Op, TensorType
from aneforge.compiler.banks import row_stride
from aneforge.compiler.facts import Facts

__all__ = ["Footprint"]


class Footprint:
    """Strides and sizes on one chip. A pass that uses it declares 0x1c0, 0x1c8 and 0x1f8."""

    def __init__(self, chip: Facts) -> None:
        self._granule: int = chip["dram_alignment"]
        self._banks: int = chip["l2_bank_align"]
        self._widest: int | None = chip.get("max_l2_dst_stride")
        self.rules = (self._granule, self._banks, self._widest)
        """Equal for chips on which every tensor has the same size."""
        self._strides: dict[TensorType, int] = {}
        self._sizes: dict[TensorType, int] = {}

    def row_stride(self, value: Op) -> int:
        """Bytes from one row to the next, chosen so that neighbouring rows lie in different banks."""
        type_ = value.type
        assert type_ is not None
        stride = self._strides.get(type_)
        if stride is None:
            n, d, c, h, w = type_.shape
            width = w * type_.element_bytes
            stride = row_stride(width, n * d * c * h, self._granule, self._banks, self._widest)
            self._strides[type_] = stride
        return stride

    def bytes(self, value: Op) -> int:
        """What a value takes. Memory has the strides of L2, so moving a tensor is one straight copy."""
        type_ = value.type
        assert type_ is not None
        size = self._sizes.get(type_)
        if size is None:
            n, d, c, h, _ = type_.shape
            size = self._sizes[type_] = n * d * c * h * self.row_stride(value)
        return size

    def same_bytes(self, first: Op, second: Op) -> bool:
        """Whether two shapes of the same elements lie alike in memory: equal rows, or no gaps between rows at all."""
        first_type, second_type = _type(first), _type(second)
        if first_type.dtype != second_type.dtype:
            return False
        return first_type.shape[4] == second_type.shape[4] or (self._dense(first) and self._dense(second))

    def _dense(self, value: Op) -> bool:
        return self.bytes(value) == _type(value).bytes


def _type(value: Op) -> TensorType:
    assert value.type is not None
    return value.type
