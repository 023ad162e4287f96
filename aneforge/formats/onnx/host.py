# pyright: reportMissingImports=false
"""ONNX ops that stay on the host: one node as a small model of its own, computed by the ONNX reference evaluator."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aneforge.formats.values import Value, as_tensor
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

_IN_BODY = 4096  # up to this many known numbers are part of the body; larger arrays are weights of the graph


@dataclass(frozen=True)
class Typed:
    """A value with the element type and shape that the file gives it; a single number has shape ()."""

    value: Value
    element: int
    shape: tuple[int, ...]


def single_node_model(onnx: Any, proto: Any, inputs: Mapping[str, Typed], opsets: Any) -> tuple[Any, list[Tensor]]:
    """Return a model of one node, and the tensors for its ports in order. Known inputs are stored in the model."""
    helper = onnx.helper
    ports, stored, operands = [], [], []
    for name, typed in inputs.items():
        value = typed.value
        if isinstance(value, np.ndarray) and (value.dtype.kind != "f" or value.size <= _IN_BODY):
            stored.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value).reshape(typed.shape), name))
            continue
        ports.append(helper.make_tensor_value_info(name, typed.element, typed.shape))
        operands.append(as_tensor(value))
    results = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    graph = helper.make_graph([proto], "host", ports, results, stored)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), operands


def result_types(onnx: Any, model: Any) -> dict[str, tuple[int, tuple[int, ...]]] | None:
    """Element type and shape of each result, or None if a shape depends on data or a result is not a tensor."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception:  # the node is not valid, or the standard does not have the op
        return None
    types = {}
    for port in inferred.graph.output:
        kind = port.type.tensor_type
        if not port.type.HasField("tensor_type") or not kind.HasField("shape"):
            return None
        if not all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in kind.shape.dim):
            return None
        types[port.name] = (kind.elem_type, tuple(int(dim.dim_value) for dim in kind.shape.dim))
    return types


def _graph_dtype(onnx: Any, element: int) -> str | None:
    """Return the graph's type for an element type of the file."""
    name = onnx.TensorProto.DataType.Name(element)
    if name in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"):
        return "fp16"
    if name == "BOOL":
        return "bool"
    return "int32" if name.startswith(("INT", "UINT")) else None


def host_results(onnx: Any, proto: Any, inputs: Mapping[str, Typed], opsets: Any, reason: str) -> list[Typed] | None:
    """Return the results of a node as host ops, or None if their shapes or types are not fixed."""
    model, operands = single_node_model(onnx, proto, inputs, opsets)
    types = result_types(onnx, model)
    if types is None or not operands:
        return None
    body = base64.b64encode(model.SerializeToString(deterministic=True)).decode("ascii")
    results = []
    for name in proto.output:
        if not name:
            results.append(Typed(np.zeros(0), 0, ()))
            continue
        element, shape = types[name]
        dtype = _graph_dtype(onnx, element)
        if dtype is None:
            return None
        tensor = host(
            operands,
            language="onnx",
            kind=proto.op_type,
            body=body,
            shape=shape or (1,),
            dtype=dtype,
            output=list(types).index(name),
            reason=reason,
        )
        results.append(Typed(tensor, element, shape))
    return results


@lru_cache(maxsize=64)
def _session(body: str) -> tuple[Any, list[tuple[str, Any, tuple[int, ...]]]]:
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(base64.b64decode(body))
    ports = []
    for port in model.graph.input:
        kind = port.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        ports.append((port.name, dtype, tuple(int(dim.dim_value) for dim in kind.shape.dim)))
    return evaluator(model), ports


@lru_cache(maxsize=1)
def _corrected_ops() -> list[Any]:
    """Ops that the reference evaluator gets wrong or takes minutes for: its GatherElements fails on indices whose
    first extent is 1; its GridSample is a loop over places, and knows modes only by their names since opset 20."""
    from onnx.reference.op_run import OpRun

    from aneforge.formats.forms.resampling import sampled_numbers

    class GatherElements(OpRun):
        op_domain = ""

        def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
            return (np.take_along_axis(data, np.where(indices < 0, indices + data.shape[axis], indices), axis),)

    class GridSample(OpRun):
        op_domain = ""

        def _run(
            self,
            x: np.ndarray,
            grid: np.ndarray,
            align_corners: int = 0,
            mode: str = "linear",
            padding_mode: str = "zeros",
        ) -> tuple[np.ndarray]:
            named = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
            return (sampled_numbers(x, grid, named, padding_mode, bool(align_corners)).astype(x.dtype),)

    return [GatherElements, GridSample]


def evaluator(model: Any) -> Any:
    """The reference evaluator for a model, with some ops of our own."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model, new_ops=_corrected_ops())


def evaluate(kind: str, body: str, operands: Sequence[np.ndarray], output: int) -> np.ndarray:
    """Return one result of a host op; a single number gets shape (1,)."""
    session, ports = _session(body)
    feeds = {
        name: np.asarray(operand).astype(dtype).reshape(shape)
        for (name, dtype, shape), operand in zip(ports, operands, strict=True)
    }
    result = np.asarray(session.run(None, feeds)[output])
    return result if result.ndim else result.reshape(1)
