"""What a constant costs, before it is computed: ONNX's own shape inference says how many elements an op creates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_MATRICES = ("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul")
_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
_SLOW = ("CumSum", "Det", "GridSample", "LRN", "NonMaxSuppression", "Resize", "RoiAlign", "Upsample", *_CONVOLUTIONS)
_GROWING = ("Expand", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample")
"""Ops whose result may be far larger than what they read."""
_UNKNOWN = 1 << 62  # elements: over every budget
_IN_PYTHON = 16  # how much slower ops are that the reference evaluator runs in Python
_MOST_NUMBERS = 64  # of an input that may be a shape, pads or the like


def cost_of(
    onnx: Any, proto: Any, imports: Sequence[Any], inputs: Sequence[Any], attrs: Mapping[str, Any]
) -> tuple[int, int]:
    """Return upper limits for the elements that an op creates from known inputs, and for its work."""
    kind = proto.op_type
    sizes = [math.prod(value.shape) for value in inputs if value is not None]
    # An einsum makes one product for each combination of elements.
    count = min(math.prod(sizes), _UNKNOWN) if kind == "Einsum" else _created(onnx, proto, imports, inputs)
    work = count * _multiplications(kind, inputs, attrs)
    return count, sum(sizes) + work * (_IN_PYTHON if kind in _SLOW else 1)


def _created(onnx: Any, proto: Any, imports: Sequence[Any], inputs: Sequence[Any]) -> int:
    """Return the elements of the results by shapes and short inputs, or an upper limit."""
    helper, ports, known = onnx.helper, [], []
    try:
        for name, value in dict(zip(proto.input, inputs, strict=True)).items():
            if isinstance(value, np.ndarray) and value.size <= _MOST_NUMBERS and value.dtype.kind in "iufb":
                known.append(onnx.numpy_helper.from_array(value, name))
            elif value is not None:
                ports.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape))
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        graph = helper.make_graph([proto], "constant", ports, outputs, known)
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports), data_prop=True)
        kinds = [output.type.tensor_type for output in model.graph.output]
    except Exception:  # onnx has no common class for them; the evaluator says what is wrong
        kinds = []
    dims = [dim for kind in kinds for dim in kind.shape.dim]
    if kinds and all(kind.HasField("shape") for kind in kinds) and all(dim.HasField("dim_value") for dim in dims):
        return sum(math.prod(dim.dim_value for dim in kind.shape.dim) for kind in kinds)
    return _at_most(proto.op_type, inputs)


def _at_most(kind: str, inputs: Sequence[Any]) -> int:
    """Return an upper limit where shapes cannot be inferred: an op creates what its inputs broadcast to, or at most
    what it reads, and an op that grows multiplies that by the numbers of its settings."""
    shapes = [value.shape for value in inputs if value is not None]
    try:
        size = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        size = sum(map(math.prod, shapes))
    settings = [value for value in inputs[kind != "Range" :] if isinstance(value, np.ndarray) and _is_number(value)]
    numbers = [float(number) for value in settings for number in value.reshape(-1)[:_MOST_NUMBERS]]
    if kind not in _GROWING or not all(map(math.isfinite, numbers)):  # the evaluator refuses numbers without end
        return size
    if kind == "Range" and len(numbers) == 3:
        start, stop, step = numbers
        return max(0, math.ceil((stop - start) / step)) if step else 0
    return int(min(size * math.prod(1 + abs(number) for number in numbers), _UNKNOWN))


def _is_number(value: np.ndarray) -> bool:
    return value.dtype.kind in "iufV"  # V: floats that NumPy lacks


def _multiplications(kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Return the number of multiplications for each element of the result."""
    other = 3 if kind in ("QLinearMatMul", "QLinearConv") else 1
    shapes = [() if value is None else tuple(value.shape) for value in inputs]
    if kind not in (*_MATRICES, *_CONVOLUTIONS) or len(shapes) <= other or not shapes[0]:
        return 1
    if kind in _MATRICES:
        return max(1, shapes[0][0 if kind == "Gemm" and attrs.get("transA") else -1])
    return max(1, math.prod(shapes[other][1:]))
