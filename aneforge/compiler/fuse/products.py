"""A product with a stored weight becomes a resident convolution where the weight fits the working set."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.anec.spec import POINT_CONVOLUTION
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.fuse.transposes import pairs_of
from aneforge.compiler.passes import Rewriter, pass_, rewrite_by_kind
from aneforge.graph.weights import Weight, moved_weight

_TURN = {"transpose_list": pairs_of((0, 1, 4, 3, 2))}  # C and W
_STORED_AS = {"kernel_lut": "kernel_palettized_LUT"}  # the product's name for a table, and the convolution's


@pass_(
    "products-to-convolutions",
    1,
    reads=["max_operand_bytes", "max_tensor_width"],
    ensures=["resident products"],
    only=["linear", "matmul"],
)
def products_to_convolutions(module: Module, chip: Facts) -> int:
    """ReplaceMatmulWithConv: a weight below HAL 0x1b8 bytes becomes a resident kernel, a larger one stays tiled.

    The contraction moves to the channel axis and back by two C and W exchanges, which are free or cancel (C25). The
    rows then lie on the width, so a product with more of them than the width holds (0x138) stays as well.
    """
    limit, widest = chip["max_operand_bytes"], chip["max_tensor_width"]
    kernels: dict[tuple[str, Op, bool], Weight | None] = {}  # products with one weight have one kernel

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        source, stored = op.operands[:2]
        layout = stored.type
        if stored.kind != "const_in" or layout is None or layout.bytes >= limit or source.shape[2] > widest:
            return None
        if (op.kind == "matmul" and op["transpose_lhs"]) or not all(_per_output(op, bias) for bias in op.operands[2:]):
            return None
        key = op.kind, stored, "transpose_rhs" in op.attrs
        if key not in kernels:
            kernels[key] = _kernel(module, op)
        kernel = kernels[key]
        return None if kernel is None else _convolution(walk, op, kernel)

    return rewrite_by_kind(module, {"linear": pattern, "matmul": pattern})


def _kernel(module: Module, op: Op) -> Weight | None:
    """The stored weight of a product as a kernel [outputs, contracted, 1, 1]."""
    weight = stored_weight(module, op.operands[1])
    layout = op.operands[1].type
    if weight is None or layout is None:
        return None
    n, d, rows, h, columns = layout.shape
    if op.kind == "matmul" and (n, d, h) != (1, 1, 1):
        return None  # a weight for each batch is not a single kernel
    if op.kind == "linear" or op["transpose_rhs"]:
        shape = (rows, columns, 1, 1)
        form = weight.encoded
        if form is not None and form.ndim == 2:
            form = form.expand_dims(2).expand_dims(3)
        return moved_weight("as a kernel", weight, shape, lambda matrix: matrix.reshape(shape), form)
    shape = (columns, rows, 1, 1)
    return moved_weight(
        "turned into a kernel", weight, shape, lambda matrix: matrix.reshape(rows, columns).T.reshape(shape)
    )


def _per_output(op: Op, bias: Op) -> bool:
    """Whether a bias is a stored number for each output; outputs lie on the width here and on the channels there."""
    return bias.kind == "const_in" and bias.shape == (1, 1, 1, 1, op.shape[4])


def _convolution(walk: Rewriter, op: Op, kernel: Weight) -> Op:
    outputs, contracted = kernel.shape[:2]
    source = op.operands[0]
    n, d, c, h, w = source.shape
    assert w == contracted
    assert op.type is not None
    turned = walk.emit("anec.transpose", [source], TensorType((n, d, w, h, c)), _TURN, op.sources)
    layout = op.operands[1].type
    assert layout is not None
    weight = walk.stored(kernel, TensorType((outputs, 1, contracted, 1, 1), layout.dtype), op.sources)
    operands = [turned, weight]
    if len(op.operands) > 2:
        bias_key = op.operands[2].attrs["weight"]
        layout = TensorType((1, 1, outputs, 1, 1))
        operands.append(walk.emit("anec.const_in", (), layout, {"weight": bias_key}, op.sources))
    stored = {_STORED_AS.get(name, name): op.attrs[name] for name in op.spec.stored if name in op.attrs}
    attrs = {**POINT_CONVOLUTION, **stored} if stored else POINT_CONVOLUTION
    product = walk.emit("anec.convolution", operands, TensorType((n, d, outputs, h, c)), attrs, op.sources)
    return walk.emit("anec.transpose", [product], op.type, _TURN, op.sources)
