# pyright: reportMissingImports=false
"""ONNX ops that stay on the host: one node as a small model of its own, computed by the ONNX reference evaluator."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aneforge.frontends.values import Value, as_tensor
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

__all__ = ["Typed", "evaluate", "host_results", "result_types", "single_node_model"]

_IN_BODY = 4096  # static numbers up to this many are part of the body; larger ones are weights of the graph


@dataclass(frozen=True)
class Typed:
    """A value and what the file says of it: the element type, and the shape (a single number has none)."""

    value: Value
    element: int
    shape: tuple[int, ...]


def single_node_model(onnx: Any, proto: Any, inputs: Mapping[str, Typed], opsets: Any) -> tuple[Any, list[Tensor]]:
    """One node as a model: static inputs are stored in it, the others are its ports, in the order returned."""
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
    """Element type and shape of each result, or None where a shape depends on numbers or a type is no tensor."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception:  # an op that is wrong in itself, or unknown to the standard
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
    """The graph's type for an element type of the file."""
    name = onnx.TensorProto.DataType.Name(element)
    if name in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"):
        return "fp16"
    if name == "BOOL":
        return "bool"
    return "int32" if name.startswith(("INT", "UINT")) else None


def host_results(onnx: Any, proto: Any, inputs: Mapping[str, Typed], opsets: Any, reason: str) -> list[Typed] | None:
    """The results of a node as host ops, or None where it has no fixed meaning."""
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
    from onnx.reference import ReferenceEvaluator

    model = onnx.ModelProto()
    model.ParseFromString(base64.b64decode(body))
    ports = []
    for port in model.graph.input:
        kind = port.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        ports.append((port.name, dtype, tuple(int(dim.dim_value) for dim in kind.shape.dim)))
    return ReferenceEvaluator(model), ports


def evaluate(kind: str, body: str, operands: Sequence[np.ndarray], output: int) -> np.ndarray:
    """One result of a host op; a single number comes as one of a line."""
    session, ports = _session(body)
    feeds = {
        name: np.asarray(operand).astype(dtype).reshape(shape)
        for (name, dtype, shape), operand in zip(ports, operands, strict=True)
    }
    result = np.asarray(session.run(None, feeds)[output])
    return result if result.ndim else result.reshape(1)
