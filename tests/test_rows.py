# pyright: basic
"""The rows of all formats over the common ops: the same op with the same arguments is one graph through every format,
and what a row does not know is refused by name. The cases are generated from the rows."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_op_kit import described

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats import rows
from aneforge.formats.coreai.table import ROWS as CORE_AI
from aneforge.formats.coreml.table import ROWS as MIL
from aneforge.formats.importer.calls import CONTEXT, MISSING, called, parameters
from aneforge.formats.importer.op import FileOp
from aneforge.formats.onnx import node as onnx_node
from aneforge.formats.onnx.table import CONTRIB, PREFERRED
from aneforge.formats.onnx.table import ROWS as ONNX
from aneforge.formats.ops import OPS
from aneforge.formats.pytorch.table import ROWS as TORCH

FORMATS = {"Core AI": CORE_AI, "MIL": MIL, "ONNX": ONNX, "com.microsoft": CONTRIB, "PyTorch": TORCH}
X = (1, 8, 4, 4)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).uniform(0.25, 1.0, shape).astype(np.float32)


KINDS = {"float": 0.75, "int": 1, "bool": True, "Value | float": 0.5}
SAMPLES: dict[str, dict[str, Any]] = {
    "": {
        "x": "input", "y": "input", "a": "input", "b": "input", "axes": [1], "axis": 1, "strides": [2, 1],
        "pad": [1, 0, 0, 1], "pad_type": "custom", "dilations": [1, 1], "kernel_sizes": [3, 2], "perm": [0, 2, 1, 3],
        "reps": [1, 2, 1, 1], "gamma": numbers(8), "beta": 0.25, "mean": numbers(8), "variance": numbers(8),
        "groups": 2, "weight": numbers(6, 4, 3, 3), "bias": numbers(6), "indices": np.array([[2, 0], [1, 3]]),
        "mode": "tanh", "shape": [1, 8, 16], "block_size": 2, "epsilon": 1e-3, "eps": 1e-3, "rounding": "floor",
        "low": -0.5, "high": 0.5, "k": 2, "begin": 1, "end": 3, "step": 1, "size": 3, "lengths": [3] * 8,
        "seq_axis": 2, "batch_axis": 1, "seed": 3,
    },
    "add_matmul": {"c": numbers(5), "a": "line", "b": numbers(16, 5), "beta": 1.0, "alpha": 1.0},
    "affine_grid": {"theta": numbers(1, 2, 3), "size": [1, 8, 3, 3]},
    "batch_norm channel_norm instance_norm group_norm": {"beta": numbers(8)},
    "bilinear": {"x": "line", "y": "line", "weight": numbers(3, 16, 16), "bias": numbers(3)},
    "broadcast_to": {"shape": [2, 8, 4, 4]},
    "concat": {"values": ["input", numbers(1, 8, 4, 4)]},
    "dft": {"signal": numbers(1, 8, 2), "size": 8},
    "distances": {"p": 2.0},
    "dropout": {"training_mode": False},
    "einsum": {"values": ["input", numbers(1, 8, 4, 4)], "equation": "abcd,abcd->ab"},
    "expand_dims": {"axes": [1]},
    "gather": {"batch_dims": 0},
    "gather_along_axis": {"indices": np.ones((1, 2, 4, 4), int)},
    "gather_nd": {"indices": np.zeros((3, 2), int), "batch_dims": 0},
    "gemm linear": {"x": "line", "a": "line", "weight": numbers(5, 16), "b": numbers(5, 16), "c": numbers(5),
                    "bias": numbers(5), "transpose_b": True, "transpose_a": False, "beta": 1.0},
    "grid_sample": {"grid": numbers(1, 3, 3, 2), "mode": "linear", "padding_mode": "zeros"},
    "layer_norm_from": {"gamma": numbers(4), "beta": numbers(4), "axis": -1},
    "lerp": {"weight": 0.25},
    "local_response_norm": {"k": 1.0, "alpha": 0.01},
    "matmul": {"y": numbers(4, 5), "transpose_x": False, "transpose_y": False},
    "repeat": {"repeats": np.array([2])},
    "pad": {"mode": "reflect"},
    "reduce_argmax reduce_argmin": {"last": False},
    "rms_norm": {"gamma": numbers(4), "axis": -1},
    "roll": {"shifts": [1], "axes": [1]},
    "scatter_along_axis": {"indices": np.ones((1, 2, 4, 4), int), "updates": numbers(1, 2, 4, 4), "data": "input",
                           "mode": "add"},
    "scatter_nd": {"indices": np.zeros((3, 1), int), "updates": numbers(3, 8, 4, 4), "data": "input", "mode": "add"},
    "move_axes": {"source": [1], "destination": [2]},
    "prelu": {"alpha": numbers(8)},
    "squeeze": {"axes": [0]},
    "stack": {"values": ["input", numbers(1, 8, 4, 4)]},
    "stft": {"signal": numbers(1, 16, 1), "step": 4, "window": numbers(8), "size": 8},
    "topk": {"axis": -1, "k": 1},
    "trace": {"x": "line"},
    "triangle": {"diagonal": 1},
}  # fmt: skip
LEFT_OUT = {"cast", "conv_transpose", "random_normal_like", "random_uniform_like", "select", "where_above"}
LEFT_OUT |= {"constexpr_lut_to_dense", "constexpr_sparse_to_dense", "dequantize", "quantize", "shape", "slice_update"}
"""Ops that need more than arguments, give no tensor or draw at random; files of each format test them."""


def sample(op: str, name: str, kind: str) -> Any:
    own = next((values for ops, values in SAMPLES.items() if op in ops.split() and name in values), SAMPLES[""])
    value = own.get(name, KINDS.get(kind))
    return [placed(entry) for entry in value] if isinstance(value, list) else placed(value)


def placed(value: Any) -> Any:
    return {"input": PORT, "line": LINE}.get(value, value) if isinstance(value, str) else value


PORT, LINE = af.input(X, name="x"), af.input((4, 16), name="line")


def reachable(row: rows.Row) -> dict[str, Any]:
    """Sample values of all arguments that a file can give to a row."""
    given = {}
    for parameter in parameters(row.function):
        named = parameter.name in row.names.values() or parameter.name not in row.names
        if parameter.kind == CONTEXT or not named:
            continue
        value = sample(row.op, parameter.name, parameter.kind)
        if value is not None and parameter.name not in row.defaults:
            given[parameter.name] = value
        elif parameter.default is MISSING and parameter.name not in row.defaults:
            pytest.fail(f"no sample of {parameter.name} for {row.op}")
    return given


def by_names(row: rows.Row, given: dict[str, Any]) -> Any:
    own = {common: name for name, common in row.names.items() if common}
    arguments = {
        own.get(name, name): value if isinstance(value, list) and name == "values" else [as_array(value)]
        for name, value in given.items()
    }
    return rows.apply(row, FileOp(row.op, "op", arguments, outputs=OUTPUTS))


def as_array(value: Any) -> Any:
    return value if isinstance(value, (af.Tensor, np.ndarray)) else np.asarray(value)


OUTPUTS: list[tuple[str, Any]] = [("y", None)]


def by_node(row: rows.Row, given: dict[str, Any]) -> Any:
    own = {common: name for name, common in row.names.items() if common}
    inputs: list[Any] = []
    for operand in row.operands:
        value = given.get(operand.lstrip("*"))
        inputs += value if operand.startswith("*") else [None if value is None else as_array(value)]
    operands = [operand.lstrip("*") for operand in row.operands]
    attrs = {own.get(name, name): value for name, value in given.items() if name not in operands}
    if "pads" in attrs:
        attrs["pads"] = [*attrs["pads"][::2], *attrs["pads"][1::2]]
    if "auto_pad" in attrs:
        attrs["auto_pad"] = "NOTSET"
    return onnx_node.apply(row, onnx_node.OnnxNode(row.op, "op", 21, attrs, ["y"], inputs))


def by_signature(row: rows.Row, given: dict[str, Any]) -> Any:
    own = {common: name for name, common in row.names.items() if common}
    arguments = [given.get(operand) for operand in row.operands]
    options = {own.get(name, name): value for name, value in given.items() if name not in row.operands}
    bound = row.bind(arguments, options)
    return called(row.function, bound, as_op(row, bound))


def as_op(row: rows.Row, given: dict[str, Any]) -> FileOp:
    return FileOp(row.op, "op", {key: listed(value) for key, value in given.items()}, outputs=OUTPUTS)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


CALLS = {"Core AI": by_names, "MIL": by_names, "ONNX": by_node, "com.microsoft": by_node, "PyTorch": by_signature}
OTHERS = (ONNX, CONTRIB, TORCH)
"""MIL has the common names, so that an op of MIL alone has nothing to be compared with."""
SHARED = [
    (label, name)
    for label, table in FORMATS.items()
    for name, row in table.items()
    if OPS.get(row.op) is row.function and row.op not in LEFT_OUT
    and any(other.function is row.function for rest in OTHERS for other in rest.values())
]  # fmt: skip


def one_tensor(result: Any) -> Any:
    return result[0] if isinstance(result, (list, tuple)) else result


def usable(label: str, row: rows.Row, given: dict[str, Any]) -> dict[str, Any]:
    """What this format can say: PyTorch's ops have no more arguments than their signature."""
    if label != "PyTorch":
        return given
    return {name: value for name, value in given.items() if name in row.operands or name in row.names.values()}


@pytest.mark.parametrize(("label", "name"), SHARED, ids=lambda value: value)
def test_an_op_is_one_graph_through_every_format(label: str, name: str) -> None:
    row = FORMATS[label][name]
    given = usable(label, row, reachable(row))
    direct = called(row.function, {**row.defaults, **translated(row, given)}, as_op(row, given))
    read = CALLS[label](row, given)
    assert described(af.Graph.of(one_tensor(read))) == described(af.Graph.of(one_tensor(direct)))


def translated(row: rows.Row, given: dict[str, Any]) -> dict[str, Any]:
    defaults = {"pad_type": "custom"} if row.defaults.get("pad_type") == "NOTSET" else {}
    return {**defaults, **given}


def test_most_common_ops_are_compared() -> None:
    assert len({FORMATS[label][name].op for label, name in SHARED}) >= 170
    assert len(SHARED) >= 400


@pytest.mark.parametrize("label", FORMATS)
def test_an_argument_that_no_row_knows_is_refused_by_name(label: str) -> None:
    for row in FORMATS[label].values():
        if all(parameter.kind in (CONTEXT, "OnnxNode") for parameter in parameters(row.function)):
            continue  # the function reads the whole node
        with pytest.raises(LoadError, match="argument 'nonsense' is not supported; the reader takes"):
            row.bind([], {"nonsense": 1})


def test_rows_can_be_listed_without_running_them() -> None:
    assert ONNX["ReduceSum"].takes == ["x", "axes", "keepdims", "noop_with_empty_axes"]
    assert MIL["clip"].takes == ["x", "alpha", "beta"]
    assert PREFERRED["Attention"].takes[:5] == ["q", "k", "v", "attn_mask", "past_key"]


IN_NUMPY: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "count_nonzero": ({"axes": [1]}, lambda x: np.count_nonzero(x, axis=1)),
    "glu": ({"axis": 1}, lambda x: x[:, :4] / (1 + np.exp(-x[:, 4:]))),
    "lerp": ({"a": "input", "b": 1.0, "weight": 0.25}, lambda x: x + 0.25 * (1.0 - x)),
    "move_axes": ({"source": [1], "destination": [3]}, lambda x: np.moveaxis(x, 1, 3)),
    "nan_sum": ({"axes": [2]}, lambda x: np.nansum(x, axis=2)),
    "reduce_all": ({"axes": [1]}, lambda x: (x != 0).all(axis=1)),
    "reduce_any": ({"axes": [1]}, lambda x: (x != 0).any(axis=1)),
    "repeat": ({"repeats": np.array([2]), "axis": 1}, lambda x: np.repeat(x, 2, axis=1)),
    "reverse": ({"axes": []}, lambda x: x),
    "roll": ({"shifts": [3, -1], "axes": [1, 2]}, lambda x: np.roll(x, (3, -1), (1, 2))),
    "round": ({"decimals": 1}, lambda x: np.round(x, 1)),
    "swap_axes": ({}, lambda x: np.swapaxes(x, -2, -1)),
    "variance": ({"axes": [1], "correction": 1.0}, lambda x: x.var(axis=1, ddof=1)),
    "vector_norm": ({"order": 3.0, "axes": [1]}, lambda x: np.linalg.norm(x, 3, axis=1)),
}


@pytest.mark.parametrize("name", IN_NUMPY)
def test_an_op_means_what_numpy_says(name: str) -> None:
    """Half of the numbers are negative, and one line is all zeros or less: any of it is true."""
    given, meaning = IN_NUMPY[name]
    x = np.random.default_rng(3).uniform(-2, 2, X).astype(np.float16)
    x[0, :, 0, 0] = np.minimum(np.trunc(x[0, :, 0, 0]), 0)
    result = one_tensor(called(OPS[name], {"x": PORT, **{key: placed(value) for key, value in given.items()}}, None))
    found = af.evaluate(af.Graph.of(result), {"x": x.astype(np.float32)})[0]
    np.testing.assert_allclose(found, meaning(x.astype(np.float64)), rtol=1e-3, atol=1e-3)


BUILDERS = ("aneforge.graph.builders", "aneforge.graph.ops.leaf")
FRONTENDS = Path(af.__file__).parent / "frontends"


def test_formats_leave_the_building_of_graph_ops_to_forms() -> None:
    building = set()
    for folder in ("onnx", "coreml", "coreai", "pytorch"):
        for file in (FRONTENDS / folder).rglob("*.py"):
            for statement in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(statement, ast.ImportFrom):
                    names = {f"{statement.module}.{alias.name}" for alias in statement.names} | {statement.module}
                    if names & set(BUILDERS):
                        building.add(file.relative_to(FRONTENDS).as_posix())
    assert not building
