"""Kernels in a form that the target does not read as it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aneforge.chips.streams import FLOW_READS
from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.bounds import EXACT
from aneforge.compiler.legalise.kernels import CONTRACTIONS, TABLES, kernel_flow, kernel_form, kernel_of, stored_names
from aneforge.compiler.passes import node_of, pass_
from aneforge.compiler.record import Record
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.graph.weights import Weight, derived_weight, moved_weight


def kernel_encoding(module: Module, op: Op) -> str:
    """What the form of an op's kernel is called: ``fp16``, ``int8``, ``lut4``, ``sparse`` and so on."""
    form, kernel = kernel_form(module, op), op.operands[1]
    if form.kind == "fp16" or kernel.type is None:
        return "fp16"
    if kernel.type.dtype != "f16":
        plain = "int8" if form.bits == 8 else f"int{form.bits}-affine"
        return f"lut{form.bits}" if form.looks_up else plain
    encoded = module.weights[kernel.attrs["weight"]].encoded
    return "fp16" if encoded is None else encoded.name


def _has_work(draft: Draft, chip: Facts) -> bool:
    return draft.module is not None and next(_folding(draft.module, chip), None) is not None


def _folding(module: Module, chip: Facts) -> Iterator[Op]:
    """The ops whose kernel is in a form that the target folds in that layer."""
    encoded = {op for op in module.ops if op.kind == "const_in" and _is_encoded(module, op)}
    if not encoded:
        return
    for op in module.ops:
        if kernel_of(op) in encoded and not kernel_flow(module, op, chip).keeps_form:
            yield op


def _is_encoded(module: Module, constant: Op) -> bool:
    weight = module.weights.get(constant.attrs["weight"])
    return (constant.type is not None and constant.type.dtype != "f16") or (
        weight is not None and weight.encoded is not None
    )


@pass_(
    "expand-encodings",
    2,
    reads=[*FLOW_READS, "max_operand_bytes"],
    requires=["layers"],
    ensures=["streamed encodings"],
    rounds=True,
    only=CONTRACTIONS,
    has_work=_has_work,
)
def expand_encodings(module: Module, chip: Facts) -> int:
    """Folded weights: a form that the target does not stream in its layer is expanded to fp16 (compression.json).

    Which chips stream a form is ``encodings``, which layers do is ``stream_conditions``: unit stride, no dilation, no
    tile overlap. Palettes fold where their index width is not read either (3 and 6 bits came after the M1's 4 and 8).
    """
    folding = set(_folding(module, chip))
    if not folding:
        return 0
    ops: list[Op] = []
    for op in module.ops:
        if op in folding:
            if _is_unread_palette(op, chip):
                module.records.append(Record(node_of(module, op), "expand-palette", EXACT))
            ops.append(_expand(module, op))
        ops.append(op)
    module.ops[:] = ops
    module.sweep()
    return len(folding)


def _expand(module: Module, op: Op) -> Op:
    """Replace an op's kernel with an fp16 constant, and return that constant."""
    kernel, weight = op.operands[1], decoded_kernel(module, op)
    module.weights[weight.key] = weight
    expanded = Op("anec.const_in", (), TensorType(kernel.shape), {"weight": weight.key}, kernel.sources)
    expanded.mark(folded=kernel_encoding(module, op))
    op.set_operand(1, expanded)
    op.attrs = {name: value for name, value in op.attrs.items() if name not in stored_names(op)}
    return expanded


def _is_unread_palette(op: Op, chip: Facts) -> bool:
    """Whether a kernel is a palette whose index width the chip cannot read. Other weights fold when a program is
    built."""
    kernel = op.operands[1].type
    looked_up = any(name in op.attrs for name in TABLES)
    return looked_up and kernel is not None and int(kernel.dtype[2:]) not in chip["palette_bits"]


def decoded_kernel(module: Module, op: Op) -> Weight:
    """The numbers that an op's kernel stands for, rounded to fp16 once, ties to even."""
    codes = module.weights[op.operands[1].attrs["weight"]]
    parts_by_name = {name: module.weights[op.attrs[name]] for name in stored_names(op)}
    if not parts_by_name:
        plain = codes.encoded is None
        return codes if plain else moved_weight("decoded", codes, codes.shape, lambda numbers: numbers)

    def numbers(stored: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
        part_of: dict[str, Any] = dict(zip(parts_by_name, arrays, strict=True))
        for name in TABLES:
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
