"""Ports, stored constants, state and native layers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from aneforge.anec.tensor_type import TensorType
from aneforge.anec.types.checks import check_dtype, require

if TYPE_CHECKING:
    from aneforge.anec.ir import Op
    from aneforge.graph.weights import Weight


def free(op: Op) -> TensorType | None:
    """A value from outside has the type that its op declares."""
    return op.type


def output(op: Op, *operands: TensorType) -> None:
    names = op["names"]
    require(
        len(names) == len(operands), f"has {len(names)} names for {len(operands)} operands; expected the same number"
    )
    require(len(set(names)) == len(names), f"names = {list(names)} has a name twice")


def unit(op: Op, *operands: TensorType) -> TensorType | None:
    """A native layer has a shape of its own."""
    for number, operand in enumerate(operands):
        check_dtype(f"operand {number}", operand, "f16")
    return None if op.type is None else TensorType(op.type.shape)


def stored_size(op: Op, weights: Mapping[str, Weight]) -> None:
    """A constant has as many elements as its type says."""
    weight = weights.get(op["weight"])
    if weight is not None and op.type is not None:
        size = prod(weight.shape)
        require(
            size == op.type.elements, f"weight {op['weight']!r} has {size} elements; its type has {op.type.elements}"
        )
