# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""An op that several formats have is one graph, whatever file it came in: the same ops, attributes, constants and
wiring, and the same bits on M1 and M5. Every row says how a format spells the op, and by ``af`` what it becomes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from same_op_kit import assert_same

import aneforge as af
from aneforge.formats import coreml
from aneforge.study.risk import risks_on

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

kit = pytest.importorskip("coreml_kit")
nets = pytest.importorskip("coreml_network_kit")
mb = kit.mb

pytestmark = pytest.mark.filterwarnings("ignore")
X = (1, 8, 4, 4)


@dataclass
class Row:
    wanted: Callable[..., Any]
    onnx: tuple[Any, ...] | None = None
    """Kind, attributes, and constants after the inputs (None where one is left out)."""
    mil: Callable[..., Any] | None = None
    net: Callable[[Any], Any] | None = None
    shape: tuple[int, ...] = X
    inputs: int = 1
    positive: bool = False
    first: Any = None
    """A constant before the inputs of the ONNX op."""


def s(value: float) -> float:
    """As files hold it."""
    return float(np.float32(value))


def f(value: Any) -> np.ndarray:
    return np.asarray(value, np.float32)


def op(kind: str, *constants: Any, **attributes: Any) -> tuple[Any, ...]:
    return kind, constants, attributes


def mil(name: str, **more: Any) -> Callable[..., Any]:
    return lambda x, *rest: getattr(mb, name)(x=x, **({"y": rest[0]} if rest else {}), **more)


def act(kind: str, *params: float) -> Callable[[Any], Any]:
    return lambda b: b.add_activation("op", kind, "x", "y", list(params) or None)


def unary(mode: str, alpha: float = 1.0, eps: float = 0.0) -> Callable[[Any], Any]:
    return lambda b: b.add_unary("op", "x", "y", mode, alpha=alpha, epsilon=eps)


def layer(name: str, **more: Any) -> Callable[[Any], Any]:
    return lambda b: getattr(b, f"add_{name}")("op", input_name="x", output_name="y", **more)


def pair(name: str) -> Callable[[Any], Any]:
    return lambda b: getattr(b, f"add_{name}")("op", ["x", "z"], "y")


def truth_of(x: Any) -> Any:
    return x.not_equal(0.0)


ROWS: dict[str, Row] = {
    # Activations.
    "gelu": Row(lambda x: x.gelu(), op("Gelu"), mil("gelu", mode="EXACT"), layer("gelu", mode="EXACT")),
    "gelu by tanh": Row(
        lambda x: x.gelu(), op("Gelu", approximate="tanh"), mil("gelu", mode="TANH_APPROXIMATION"),
        layer("gelu", mode="TANH_APPROXIMATION"),
    ),
    "gelu by sigmoid": Row(
        lambda x: x * x.linear_activation(s(1.702)).sigmoid(), op("Swish", alpha=1.702),
        mil("gelu", mode="SIGMOID_APPROXIMATION"), layer("gelu", mode="SIGMOID_APPROXIMATION"),
    ),
    "silu": Row(lambda x: x.silu(), op("Swish"), mil("silu")),
    "relu": Row(lambda x: x.relu(), op("Relu"), mil("relu"), act("RELU")),
    "relu6": Row(lambda x: x.relu6(), op("Clip", f(0), f(6)), mil("clip", alpha=0.0, beta=6.0)),
    "relu by clip": Row(lambda x: x.relu(), op("Clip", f(0)), mil("clip", alpha=0.0, beta=math.inf)),
    "clip": Row(
        lambda x: x.clip(-1.0, 1.5), op("Clip", f(-1), f(1.5)), mil("clip", alpha=-1.0, beta=1.5),
        layer("clip", min_value=-1.0, max_value=1.5),
    ),
    "clip above": Row(lambda x: af.minimum(x, 1.5), op("Clip", None, f(1.5)), mil("clip", alpha=-1e9, beta=1.5)),
    "hard sigmoid": Row(
        lambda x: x.sigmoid_hard(s(0.2), 0.5), op("HardSigmoid", alpha=0.2, beta=0.5),
        mil("sigmoid_hard", alpha=0.2, beta=0.5), act("SIGMOID_HARD", 0.2, 0.5),
    ),
    "sigmoid": Row(lambda x: x.sigmoid(), op("Sigmoid"), mil("sigmoid"), act("SIGMOID")),
    "tanh": Row(lambda x: x.tanh(), op("Tanh"), mil("tanh"), act("TANH")),
    "elu": Row(lambda x: x.elu(s(0.7)), op("Elu", alpha=0.7), mil("elu", alpha=0.7),
               lambda b: b.add_activation("op", "ELU", "x", "y", 0.7)),
    "leaky relu": Row(
        lambda x: x.leaky_relu(s(0.1)), op("LeakyRelu", alpha=0.1), mil("leaky_relu", alpha=0.1), act("LEAKYRELU", 0.1)
    ),
    "prelu": Row(
        lambda x: x.prelu(np.arange(8) / 8), op("PRelu", f(np.arange(8) / 8).reshape(8, 1, 1)),
        mil("prelu", alpha=f(np.arange(8) / 8)),
    ),
    "prelu of one slope": Row(lambda x: x.leaky_relu(0.25), op("PRelu", f([[[0.25]]]))),
    "softplus": Row(lambda x: x.softplus(), op("Softplus"), mil("softplus"), act("SOFTPLUS")),
    "softsign": Row(lambda x: x.softsign(), op("Softsign"), mil("softsign"), act("SOFTSIGN")),
    # Arithmetic.
    "product with a number": Row(
        lambda x: x.linear_activation(s(1.702)), op("Mul", f(1.702)), mil("mul", y=f(1.702)),
        lambda b: b.add_elementwise("op", ["x"], "y", "MULTIPLY", alpha=1.702),
    ),
    "product with a number of fp16": Row(
        lambda x: x * 0.5, op("Mul", f([0.5])), mil("mul", y=f(0.5)),
        lambda b: b.add_elementwise("op", ["x"], "y", "MULTIPLY", alpha=0.5),
    ),
    "product beyond fp16": Row(
        lambda x: (x * 32768.0).linear_activation(s(-1e9 / 32768)), op("Mul", f(-1e9)), mil("mul", y=f(-1e9)),
        lambda b: b.add_elementwise("op", ["x"], "y", "MULTIPLY", alpha=-1e9),
    ),
    "sum with a number": Row(
        lambda x: x.linear_activation(1.0, s(0.1)), op("Add", f(0.1)), mil("add", y=f(0.1)),
        lambda b: b.add_elementwise("op", ["x"], "y", "ADD", alpha=0.1),
    ),
    "mask of -1e9": Row(
        lambda x: x + -math.inf, op("Add", f(-1e9)), mil("add", y=f(-1e9)),
        lambda b: b.add_elementwise("op", ["x"], "y", "ADD", alpha=-1e9),
    ),
    "difference": Row(lambda x, z: x - z, op("Sub"), mil("sub"), pair("subtract_broadcastable"), inputs=2),
    "sum": Row(lambda x, z: x + z, op("Add"), mil("add"), pair("add_broadcastable"), inputs=2),
    "product": Row(lambda x, z: x * z, op("Mul"), mil("mul"), pair("multiply_broadcastable"), inputs=2),
    "quotient": Row(
        lambda x, z: x / z, op("Div"), mil("real_div"), pair("divide_broadcastable"), inputs=2, positive=True
    ),
    "quotient by a number": Row(lambda x: x.linear_activation(s(1 / 3)), op("Div", f(3)), mil("real_div", y=f(3))),
    "one by x": Row(
        lambda x: x.inverse(0.0), op("Div"), lambda x: mb.real_div(x=f(1), y=x), positive=True, first=f(1)
    ),
    "number less x": Row(lambda x: 1.0 - x, op("Sub"), lambda x: mb.sub(x=f(1), y=x), first=f(1)),
    "remainder": Row(
        af.mod, op("Mod", fmod=0), mil("mod"), pair("mod_broadcastable"), inputs=2, positive=True
    ),
    "largest": Row(af.maximum, op("Max"), mil("maximum"), pair("max_broadcastable"), inputs=2),
    "smallest": Row(af.minimum, op("Min"), mil("minimum"), pair("min_broadcastable"), inputs=2),
    **{
        f"power {exponent}": Row(
            wanted, op("Pow", f(exponent)), mil("pow", y=f(exponent)), unary("power", exponent), positive=True
        )
        for exponent, wanted in {
            2.0: lambda x: x.square(), 3.0: lambda x: x * x.square(), 0.5: lambda x: x.sqrt(),
            -0.5: lambda x: x.rsqrt(0.0), -1.0: lambda x: x.inverse(0.0), 1.5: lambda x: x.pow(1.5),
        }.items()
    },
    "log": Row(lambda x: x.log(0.0), op("Log"), mil("log"), unary("log"), positive=True),
    "inverse": Row(
        lambda x: x.inverse(0.0), op("Reciprocal"), mil("inverse", epsilon=0.0), unary("inverse"), positive=True
    ),
    **{
        name: Row(lambda x, name=name: getattr(x, name)(), op(name.capitalize()), mil(name), positive=True)
        for name in ("exp", "sqrt", "abs", "erf", "sign", "floor", "ceil", "round", "sin", "cos")
    },
    # Truth values.
    "greater than a number": Row(
        lambda x: x.greater(float(np.nextafter(np.float16(0.1), np.float16(-1)) if np.float16(0.1) > 0.1 else
                                  np.float16(0.1))).cast(),
        op("Greater", f(0.1)), lambda x: mb.cast(x=mb.greater(x=x, y=f(0.1)), dtype="fp32"),
    ),
    "cast to bool": Row(
        lambda x: truth_of(x).cast(), op("Cast", to=9), lambda x: mb.cast(x=mb.cast(x=x, dtype="bool"), dtype="fp32")
    ),
    "cast to int": Row(
        lambda x: x.sign() * x.abs().floor(), op("Cast", to=6),
        lambda x: mb.cast(x=mb.cast(x=x, dtype="int32"), dtype="fp32"),
    ),
    # Norms and reductions.
    "softmax": Row(lambda x: x.softmax(1), op("Softmax", axis=1), mil("softmax", axis=1)),
    "softmax of the last axis": Row(lambda x: x.softmax(-1), op("Softmax", axis=-1), mil("softmax", axis=-1)),
    "layer norm": Row(
        lambda x: x.layer_norm(np.ones(16), np.zeros(16), s(1e-5)),
        op("LayerNormalization", f(np.ones(16)), f(np.zeros(16)), axis=-1, epsilon=1e-5),
        mil("layer_norm", axes=[-1], gamma=f(np.ones(16)), beta=f(np.zeros(16)), epsilon=1e-5), shape=(2, 3, 16),
    ),
    "instance norm": Row(
        lambda x: af.instance_norm(x, np.ones(8), np.zeros(8), s(1e-5)),
        op("InstanceNormalization", f(np.ones(8)), f(np.zeros(8)), epsilon=1e-5),
        mil("instance_norm", gamma=f(np.ones(8)), beta=f(np.zeros(8)), epsilon=1e-5),
    ),
    **{
        f"reduce {name}": Row(
            lambda x, function=function: function(x).reshape(1, 8, 4), op(f"Reduce{kind}", np.array([2]), keepdims=0),
            mil(f"reduce_{name}", axes=[2], keep_dims=False), positive=True,
        )
        for name, kind, function in (
            ("sum", "Sum", lambda x: x.sum((2,))), ("mean", "Mean", lambda x: x.mean((2,))),
            ("max", "Max", lambda x: x.amax((2,))), ("min", "Min", lambda x: x.amin((2,))),
            ("prod", "Prod", lambda x: x.prod((2,))), ("l1_norm", "L1", lambda x: x.l1_norm((2,))),
            ("l2_norm", "L2", lambda x: x.sum_square((2,)).sqrt()),
            ("log_sum_exp", "LogSumExp", lambda x: x.reduce_log_sum_exp((2,))),
        )
    },
    "running sum": Row(lambda x: x.cumsum(2), op("CumSum", np.array(2)), mil("cumsum", axis=2)),
    "position of the largest": Row(
        lambda x: x.argmax(-1), op("ArgMax", axis=-1),
        lambda x: mb.cast(x=mb.reduce_argmax(x=x, axis=-1, keep_dims=True), dtype="fp32"), shape=(6, 16),
    ),
    # Moves.
    "slice backwards": Row(
        lambda x: x.reverse(3), op("Slice", np.array([-1]), np.array([-9]), np.array([3]), np.array([-1])),
        mil("slice_by_index", begin=[0, 0, 0, -1], end=[0, 0, 0, 0], stride=[1, 1, 1, -1],
            begin_mask=[True] * 3 + [False], end_mask=[True] * 4),
    ),
    "slice in steps": Row(
        lambda x: af.gather(x, np.array([0, 2]), axis=2),
        op("Slice", np.array([0]), np.array([4]), np.array([2]), np.array([2])),
        mil("slice_by_index", begin=[0] * 4, end=[1, 8, 4, 4], stride=[1, 1, 2, 1]),
    ),
    "transpose": Row(lambda x: x.transpose([0, 2, 3, 1]), op("Transpose", perm=[0, 2, 3, 1]),
                     mil("transpose", perm=[0, 2, 3, 1])),
    "pad": Row(
        lambda x: af.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)], "constant", 0.5),
        op("Pad", np.array([0, 0, 1, 0, 0, 0, 2, 1]), f(0.5)),
        mil("pad", pad=[0, 0, 0, 0, 1, 2, 0, 1], mode="constant", constant_val=0.5),
    ),
    "tile": Row(lambda x: x.tile([1, 1, 2, 1]), op("Tile", np.array([1, 1, 2, 1])), mil("tile", reps=[1, 1, 2, 1])),
    "gather": Row(
        lambda x: af.gather(x, np.array([3, 1]), axis=1), op("Gather", np.array([3, 1]), axis=1),
        mil("gather", indices=np.int32([3, 1]), axis=1),
    ),
    "product with a weight": Row(
        lambda x: x.linear(np.arange(32).reshape(2, 16) / 32), op("MatMul", f(np.arange(32).reshape(2, 16).T / 32)),
        mil("linear", weight=f(np.arange(32).reshape(2, 16) / 32), bias=f(np.zeros(2))), shape=(4, 16),
    ),
    "max pool": Row(
        lambda x: x.max_pool((2, 2), stride=(2, 2), pad=(1, 0, 0, 1)),
        op("MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 0, 1]),
        mil("max_pool", kernel_sizes=[2, 2], strides=[2, 2], pad_type="custom", pad=[1, 0, 0, 1]),
    ),
    "average pool": Row(
        lambda x: x.avg_pool((2, 2), stride=(2, 2), pad=(1, 1, 1, 1), exclude_pad=True),
        op("AveragePool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
        mil("avg_pool", kernel_sizes=[2, 2], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1],
            exclude_padding_from_average=True),
    ),
}  # fmt: skip


def feeds_of(row: Row) -> list[np.ndarray]:
    drawn = np.random.default_rng(7)
    made = [drawn.uniform(0.25 if row.positive else -4.0, 4.0, row.shape) for _ in range(row.inputs)]
    return [each.astype(np.float16).astype(np.float32) for each in made]


def wanted(row: Row) -> af.Graph:
    return af.Graph.of(row.wanted(*(af.input(row.shape) for _ in range(row.inputs))))


def from_onnx(folder: Any, row: Row) -> af.Graph:
    assert row.onnx is not None
    kind, constants, attributes = row.onnx
    names = ["x", "z"][: row.inputs]
    stored = {f"c{place}": each for place, each in enumerate(constants) if each is not None}
    operands = [*names, *(f"c{place}" if each is not None else "" for place, each in enumerate(constants))]
    if row.first is not None:
        stored["first"], operands = row.first, ["first", *operands]
    nodes, opset = [helper.make_node(kind, operands, ["y"], **attributes)], 24 if kind == "Swish" else 21
    if kind in ("Greater", "Cast", "ArgMax"):
        nodes = [helper.make_node(kind, operands, ["t"], **attributes), helper.make_node("Cast", ["t"], ["y"], to=1)]
    ports = [helper.make_tensor_value_info(each, TensorProto.FLOAT, row.shape) for each in names]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "net", ports, results, weights)
    file = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), str(file))
    return af.load(file)


def from_mil(folder: Any, row: Row) -> af.Graph:
    return coreml.read(kit.package(folder, row.mil, feeds_of(row)))


def from_net(folder: Any, row: Row) -> af.Graph:
    ports = {"x": row.shape, "z": row.shape} if row.inputs == 2 else {"x": row.shape}
    return coreml.read(nets.network(folder, row.net, ports, row.shape, True))


READERS = {"onnx": from_onnx, "mil": from_mil, "net": from_net}
CASES = [
    pytest.param(name, reader, id=f"{name}-{reader}")
    for name, row in ROWS.items()
    for reader in READERS
    if getattr(row, reader) is not None
]


@pytest.mark.parametrize(("name", "reader"), CASES)
def test_same_op_same_graph_same_bits(tmp_path, name, reader):
    row = ROWS[name]
    assert_same(READERS[reader](tmp_path, row), wanted(row), feeds_of(row))


def test_other_graphs_are_told_apart():
    x = af.input(X)
    with pytest.raises(AssertionError):
        assert_same(af.Graph.of(x.elu(0.7)), af.Graph.of(x.elu(0.8)), [])


def test_risks_name_a_mask_beyond_fp16(tmp_path):
    graph = from_onnx(tmp_path, ROWS["mask of -1e9"])
    (found,) = (each for each in risks_on(graph, "m1", {"x": 4.0}) if each.rule == "infinite-constant")
    assert "infinite in fp16" in found.message
    assert "-3e4" in found.hint
    x = af.input(X)
    assert not [each for each in risks_on(x + -3e4, "m1") if each.rule == "infinite-constant"]
