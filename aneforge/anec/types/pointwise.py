"""Arithmetic, comparisons, activations and number formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aneforge.anec.tensor_type import DTYPES, TensorType
from aneforge.anec.types.checks import check_dtype, check_fits, require, stretched

if TYPE_CHECKING:
    from aneforge.anec.ir import Op

_BYTES = ("ui8", "si8")
_SCALED = ("Add", "Mult", "Min", "Max")


def arithmetic(op: Op, *operands: TensorType) -> TensorType:
    """Operands stretch to a common shape; the engine computes in fp16."""
    for number, operand in enumerate(operands):
        check_dtype(f"operand {number}", operand, "f16")
    return TensorType(stretched(operand.shape for operand in operands))


def pointwise(op: Op, x: TensorType, *vectors: TensorType) -> TensorType:
    """The shape of the first operand; the others stretch to it."""
    check_dtype("operand 0", x, "f16")
    for number, vector in enumerate(vectors, 1):
        check_dtype(f"operand {number}", vector, "f16")
        check_fits(f"operand {number}", vector, x.shape)
    return x


def scaled(op: Op, a: TensorType, b: TensorType) -> TensorType:
    require(op["mode"] in _SCALED, f"mode = {op['mode']!r}; expected {', '.join(_SCALED)}")
    return arithmetic(op, a, b)


def comparison(op: Op, *operands: TensorType) -> TensorType:
    """Truth values of numbers, or of truth values."""
    for number, operand in enumerate(operands):
        check_dtype(f"operand {number}", operand, "f16", "i1")
    return TensorType(stretched(operand.shape for operand in operands), "i1")


def select(op: Op, condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    check_dtype("the condition", condition, "i1")
    require(a.dtype == b.dtype, f"selects between {a.dtype} and {b.dtype}; expected one type")
    return TensorType(stretched((condition.shape, a.shape, b.shape)), a.dtype)


def cast(op: Op, x: TensorType) -> TensorType:
    require(op["to"] in DTYPES, f"to = {op['to']!r}; expected one of {', '.join(DTYPES)}")
    return TensorType(x.shape, op["to"])


def quant(op: Op, x: TensorType) -> TensorType:
    check_dtype("operand 0", x, "f16")
    require(op["to"] in _BYTES, f"to = {op['to']!r}; expected {' or '.join(_BYTES)}")
    return TensorType(x.shape, op["to"])


def dequant(op: Op, x: TensorType) -> TensorType:
    """Bytes, or the result of a layer in whose ``goc`` slot the op is (chapter 22)."""
    check_dtype("operand 0", x, *_BYTES, "f16")
    return TensorType(x.shape)
