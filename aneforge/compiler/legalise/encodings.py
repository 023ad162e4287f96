"""Kernels in a form that the target does not read as it is stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.bounds import EXACT
from aneforge.compiler.legalise.kernel_memory import KERNELS
from aneforge.compiler.legalise.pieces import stored_names
from aneforge.compiler.passes import node_of, pass_
from aneforge.compiler.record import Record
from aneforge.graph.weights import Weight, derived_weight

__all__ = ["expand_encodings"]

_TABLES = ("kernel_palettized_LUT", "kernel_lut")


@pass_(
    "expand-encodings",
    2,
    reads=["stream:int8", "stream:int4", "stream:blockwise", "palette_bits"],
    requires=["layers"],
    ensures=["streamed encodings"],
    rounds=True,
    only=KERNELS,
)
def expand_encodings(module: Module, chip: Facts) -> int:
    """Folded weights: an encoding that the target does not stream is expanded to fp16 (compression.json encodings).

    Palettes fold where their index width is not read either (3 and 6 bits came after the M1's 4 and 8).
    """
    ops: list[Op] = []
    for op in module.ops:
        if op.kind in KERNELS and stored_names(op) and not _streams(op, chip):
            if _is_unread_palette(op, chip):
                module.records.append(Record(node_of(module, op), "expand-palette", EXACT))
            ops.append(_expand(module, op))
        ops.append(op)
    changes = len(ops) - len(module.ops)
    if changes:
        module.ops[:] = ops
        module.sweep()
    return changes


def _expand(module: Module, op: Op) -> Op:
    """Replace an op's kernel with an fp16 constant, and return that constant."""
    kernel, weight = op.operands[1], _expanded(module, op)
    module.weights[weight.key] = weight
    expanded = Op("anec.const_in", (), TensorType(kernel.shape), {"weight": weight.key}, kernel.sources)
    op.set_operand(1, expanded)
    for name in stored_names(op):
        del op.attrs[name]
    return expanded


def _streams(op: Op, chip: Facts) -> bool:
    kernel = op.operands[1]
    if kernel.kind != "const_in" or kernel.type is None:
        return True  # computed: there is nothing to expand
    bits, scaled = int(kernel.type.dtype[2:]), "kernel_scale" in op.attrs
    if any(name in op.attrs for name in _TABLES):
        # A scale behind the table takes what a scale behind bytes takes (U65).
        return bits in chip["palette_bits"] and all(
            chip.get(fact) == "stream" for fact in ("stream:int4", *(("stream:int8",) if scaled else ()))
        )
    # Codes of 4 bits are constexpr_blockwise_shift_scale with one scale for each output (N69, C56).
    return chip.get("stream:int8" if bits == 8 else "stream:blockwise") == "stream"


def _is_unread_palette(op: Op, chip: Facts) -> bool:
    """Whether a kernel is a palette whose index width the chip cannot read. Other weights fold when a program is
    built."""
    kernel = op.operands[1].type
    looked_up = any(name in op.attrs for name in _TABLES)
    return looked_up and kernel is not None and int(kernel.dtype[2:]) not in chip["palette_bits"]


def _expanded(module: Module, op: Op) -> Weight:
    """The numbers that the codes stand for, rounded to fp16 once, ties to even."""
    codes = module.weights[op.operands[1].attrs["weight"]]
    parts_by_name = {name: module.weights[op.attrs[name]] for name in stored_names(op)}

    def numbers(stored: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
        part_of: dict[str, Any] = dict(zip(parts_by_name, arrays, strict=True))
        for name in _TABLES:
            if name in part_of:
                stored = np.take(part_of[name], stored.astype(int))
        if "kernel_zero_point" in part_of:
            stored = stored - _along_outputs(part_of["kernel_zero_point"], stored.ndim)
        return stored * _along_outputs(part_of["kernel_scale"], stored.ndim) if "kernel_scale" in part_of else stored

    recipe = f"expanded {sorted(parts_by_name)}"
    return derived_weight(recipe, (codes, *parts_by_name.values()), codes.shape, numbers)


def _along_outputs(part: np.ndarray, rank: int) -> np.ndarray:
    """One number, a vector over the outputs (the kernel's first axis), or an array laid out like the kernel."""
    return part.reshape(-1, *(1,) * (rank - 1)) if part.ndim == 1 and part.size > 1 else part
