"""The graph as a thing: order, names, text, JSON, files, weights held once, and random graphs."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import aneforge as af
from aneforge.graph.node import located, make
from aneforge.graph.weights import intern_weight

RNG = np.random.default_rng(11)


def net():
    x = af.input((1, 3, 8, 8), max_abs=4.0, name="image")
    kernel = RNG.standard_normal((4, 3, 3, 3))
    y = af.conv(x, kernel, stride=2, pad=1, bias=np.zeros(4)).relu().named("stem")
    y = y.group_norm(np.ones(4), np.zeros(4), 2).clip(-1.5, 2.0)
    y = af.concat([y, y.max_pool(2, 1, (0, 1, 0, 1))], 1)
    scale = af.parameter(RNG.standard_normal((1, 8, 1, 1)), name="scale")
    return [(y * scale)[:, ::2, ::-1].flatten2d().softmax(), y.mean([2, 3]).greater(0.0)]


# Order, names, text.


def test_nodes_stand_before_their_users():
    graph = af.Graph(net())
    place = {node.uid: number for number, node in enumerate(graph)}
    assert all(place[operand.uid] < place[node.uid] for node in graph for operand in node.inputs)
    assert len(graph) == len(place) == len(graph.nodes)
    assert set(graph.operations) | set(graph.inputs) | set(graph.parameters) <= set(graph.nodes)
    assert [node.name for node in graph.inputs] == ["image"]
    assert [node.name for node in graph.parameters] == ["scale"]


def test_only_what_leads_to_the_outputs_is_held():
    x = af.input((3,))
    used = x.exp()
    x.sin()
    assert [node.op for node in used.graph()] == ["input", "exp"]


def test_inputs_are_in_order_of_creation():
    first, second, third = (af.input((2,), name=name) for name in "abc")
    graph = (third - second * first).graph()
    assert [node.name for node in graph.inputs] == ["a", "b", "c"]
    assert af.evaluate(graph.outputs[0], [[1, 2], [3, 4], [5, 6]]).tolist() == [2, -2]


def test_feeds_by_name_tensor_and_parameter():
    x, p = af.input((2,), name="x"), af.parameter([2.0, 4.0], name="p")
    out = x * p
    for feeds in ([[3, 5]], {"x": [3, 5]}, {x: [3, 5]}):
        assert af.evaluate(out, feeds).tolist() == [6, 20]
    assert af.evaluate(out, {"x": [3, 5], "p": [1, 1]}).tolist() == [3, 5]
    assert af.evaluate(out, {"x": [3, 5], p: [0, 1]}).tolist() == [0, 5]


def test_several_outputs_come_as_a_list():
    x = af.input((2,))
    both = af.evaluate([x + 1, x], [[1, 2]])
    assert [each.tolist() for each in both] == [[2, 3], [1, 2]]
    assert [each.tolist() for each in af.evaluate(af.Graph([x]), [[1, 2]])] == [[1, 2]]


def test_names_are_distinct():
    x = af.input((2,), name="relu_0")
    y = x.relu().relu().named("y")
    z = y.relu().named("y") + af.input((2,), name="x") + af.input((2,), name="x")
    names = z.graph().names()
    assert len(set(names.values())) == len(names)
    assert {"relu_0", "relu_1", "y", "y_0", "x", "x_0", "add_0", "add_1"} == set(names.values())


def test_text():
    x = af.input((1, 2, 4, 4), name="x")
    y = af.conv(x, np.ones((2, 2, 1, 1)), pad=(1, 0, 0, 0)).relu()
    lines = str(y.graph()).splitlines()
    line = y.where[1]
    assert lines[0] == "%x = input() {max_abs=None} : fp16[1, 2, 4, 4]"
    assert lines[1] == "%const_0 = const() : fp16[2, 2, 1, 1]"
    assert lines[2] == (
        "%conv_0 = conv(%x, %const_0) {stride=(1, 1), pad=(1, 0, 0, 0), dilation=(1, 1), groups=1} "
        f": fp16[1, 2, 5, 4]  # test_graph_core.py:{line}"
    )
    assert lines[3] == f"%relu_0 = relu(%conv_0) : fp16[1, 2, 5, 4]  # test_graph_core.py:{line}"
    assert repr(y) == "<relu fp16[1, 2, 5, 4]>"
    assert repr(x) == "<input 'x' fp16[1, 2, 4, 4]>"
    assert repr(y.graph()) == "Graph(2 ops, 1 inputs -> <relu fp16[1, 2, 5, 4]>)"


def test_a_tensor_tells_what_numpy_users_ask():
    x = af.input((2, 3, 4))
    assert (x.ndim, x.size, x.dtype, x.shape, len(x)) == (3, 24, "fp16", (2, 3, 4), 2)
    assert (x.T.shape, x.mT.shape, (x > 0).dtype) == ((4, 3, 2), (2, 4, 3), "bool")
    assert x.relu().srcs == (x,)
    assert hash(x) != hash(af.input((2, 3, 4)))


def test_the_users_line_is_known_inside_helpers_and_beside_the_package(tmp_path):
    beside = str(af.__file__).replace("__init__.py", "").rstrip("/") + "_user/code.py"
    scope = {"af": af}
    exec(compile("x = af.input((3,))\n\ny = x.sum(0)", beside, "exec"), scope)  # noqa: S102
    assert located(scope["y"].where) == "code.py:3"


def test_equal_calls_share_a_signature():
    x, y = af.input((4, 4)), af.input((4, 4))
    assert x.relu().signature is y.relu().signature
    assert x.relu().signature is not x.tanh().signature
    assert x.sum(0).signature is not x.sum(1).signature


# Weights are held once.


def test_one_array_fifty_times_is_one_weight():
    w = RNG.standard_normal((64, 64)).astype(np.float32)
    x = af.input((2, 64))
    for _ in range(50):
        x = x @ w
    graph = x.graph()
    assert len(graph.weights) == 1
    held = {id(node.weight) for node in graph if node.weight is not None}
    assert len(held) == 1
    (weight,) = graph.weights.values()
    assert weight.array.dtype == np.float16
    assert all(np.shares_memory(node.weight.array, weight.array) for node in graph if node.weight is not None)


def test_equal_contents_are_one_weight_and_shapes_count():
    a = np.arange(6.0)
    assert intern_weight(a) is intern_weight(a.astype(np.float16)) is intern_weight(list(a)) is intern_weight(a.copy())
    assert intern_weight(a) is not intern_weight(a.reshape(2, 3))
    assert intern_weight(a).key != intern_weight(a + 1).key
    assert intern_weight(a.reshape(2, 3).T) is intern_weight(np.ascontiguousarray(a.reshape(2, 3).T))


def test_a_weight_is_not_the_users_memory():
    mine = np.ones((3, 2), np.float16)
    y = af.input((2, 3)) @ mine
    mine[:] = 5
    (weight,) = y.graph().weights.values()
    assert (weight.array == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        weight.array[0] = 2
    mine[:] = 7  # the user's array stays writable


def test_weights_are_freed():
    from aneforge.graph import weights

    gc.collect()
    before = len(weights._table)
    y = af.input((2, 3)) @ RNG.standard_normal((3, 3))
    assert len(weights._table) == before + 1
    del y
    gc.collect()
    assert len(weights._table) == before


# JSON and files.


def same(first, second, feeds):
    assert [(n.op, n.shape, n.dtype, n.name, n.attrs) for n in first] == [
        (n.op, n.shape, n.dtype, n.name, n.attrs) for n in second
    ]
    assert set(first.weights) == set(second.weights)
    for a, b in zip(af.evaluate(first, feeds), af.evaluate(second, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_json_round_trip():
    graph = af.Graph(net())
    text = json.dumps(graph.to_json())
    back = af.Graph.from_json(json.loads(text))
    same(graph, back, [RNG.standard_normal((1, 3, 8, 8))])
    assert json.dumps(back.to_json()) == text
    lines = [line.partition("  #")[0] for line in str(graph).splitlines()]
    assert [line.partition("  #")[0] for line in str(back).splitlines()] == lines


def test_json_attributes_in_any_order():
    graph = af.Graph(net())
    back = af.Graph.from_json(json.loads(json.dumps(graph.to_json(), sort_keys=True)))
    same(graph, back, [RNG.standard_normal((1, 3, 8, 8))])


def test_json_holds_a_weight_once_and_can_leave_it_out():
    w = np.ones((4, 4))
    x = af.input((2, 4))
    document = (x @ w @ w @ w).graph().to_json()
    assert len(document["weights"]) == 1
    assert "weights" not in (x @ w).graph().to_json(weights=False)


def test_file_round_trip(tmp_path):
    graph = af.Graph(net())
    for path in (tmp_path / "net.ane", str(tmp_path / "other.ane")):
        graph.save(path)
        back = af.load_graph(path)
        same(graph, back, [RNG.standard_normal((1, 3, 8, 8))])
        assert back.to_json() == graph.to_json()
        assert {key: id(w) for key, w in back.weights.items()} == {key: id(w) for key, w in graph.weights.items()}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["net.ane", "other.ane"]


def test_every_op_of_the_reference_cases_round_trips():
    from test_graph_ops import CASES

    for each in CASES[::3]:
        inputs = [af.input(array.shape) for array in each.arrays]
        out = each.build(*inputs)
        graph = af.Graph([*inputs, out])
        back = af.Graph.from_json(json.loads(json.dumps(graph.to_json())))
        same(graph, back, each.arrays)


# Random graphs.

POOL = {
    "add": lambda x, data: x + data.draw(st.sampled_from([0.5, -2.0])),
    "mul": lambda x, data: x * x,
    "sub": lambda x, data: x - x.mean(data.draw(st.integers(-x.ndim, x.ndim - 1))),
    "broadcast": lambda x, data: x + af.const(np.ones(x.shape[-1])),
    "tanh": lambda x, data: x.tanh(),
    "relu": lambda x, data: x.relu(),
    "clip": lambda x, data: x.clip(-1.0, 1.0),
    "sigmoid": lambda x, data: x.sigmoid(),
    "sum": lambda x, data: x.sum(data.draw(axes(x))) * 0.25,
    "amax": lambda x, data: x.amax(data.draw(axes(x))),
    "cumsum": lambda x, data: x.cumsum(data.draw(axis(x))),
    "softmax": lambda x, data: x.softmax(data.draw(axis(x))),
    "transpose": lambda x, data: x.transpose(data.draw(st.permutations(range(x.ndim)))),
    "flat": lambda x, data: x.reshape(-1),
    "fold": lambda x, data: x.flatten2d(data.draw(st.integers(0, x.ndim))),
    "expand": lambda x, data: x.expand_dims(data.draw(st.integers(-x.ndim - 1, x.ndim))) if x.ndim < 5 else x,
    "reverse": lambda x, data: x.reverse(data.draw(axes(x))),
    "concat": lambda x, data: af.concat([x, x.tanh()], data.draw(axis(x))),
    "stack": lambda x, data: af.stack([x, x], data.draw(axis(x))) if x.ndim < 5 else x,
    "tile": lambda x, data: x.tile([data.draw(st.integers(1, 2)) for _ in x.shape]),
    "pad": lambda x, data: x.pad([(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in x.shape]),
    "gather": lambda x, data: af.gather(x, [0, -1], data.draw(axis(x))),
    "where": lambda x, data: af.where(x > 0.0, x, x * 0.5),
    "matmul": lambda x, data: x @ np.eye(x.shape[-1], data.draw(st.integers(1, 3))) if x.ndim > 1 else x,
    "gram": lambda x, data: x.tanh() @ x.tanh().mT if x.ndim > 1 else x,
    "linear": lambda x, data: x.linear(np.ones((2, x.shape[-1])) * 0.25, [0.5, -0.5]),
    "norm": lambda x, data: x.rms_norm(np.ones(x.shape[-1])),
    "pool": lambda x, data: x.max_pool(2, 1, (1, 0, 1, 0), data.draw(st.booleans())) if x.ndim == 4 else x,
    "conv": lambda x, data: af.conv(x, np.ones((2, x.shape[1], 1, 2)) * 0.25, pad=(0, 0, 0, 1)) if x.ndim == 4 else x,
    "index": lambda x, data: x[data.draw(keys(x.shape))],
}


def axis(x):
    return st.integers(-x.ndim, x.ndim - 1)


def axes(x):
    return st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True)


def keys(shape):
    """Basic indices with at least one element."""
    return hnp.basic_indices(shape, max_dims=5, allow_newaxis=True).filter(
        lambda key: 0 not in np.empty(shape)[key].shape
    )


@st.composite
def graphs(draw):
    """One or two outputs of a chain of random ops, small enough to evaluate."""
    data = draw(st.data())
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))
    x = af.input(shape, name="x")
    line = [x]
    for name in draw(st.lists(st.sampled_from(sorted(POOL)), min_size=1, max_size=8)):
        source = line[draw(st.integers(max(0, len(line) - 2), len(line) - 1))]
        made = POOL[name](source, data)
        if made.size <= 4096:
            line.append(made)
    return line[-1], line[len(line) // 2], shape


@settings(max_examples=120)
@given(graphs())
def test_random_graphs(made):
    *outputs, shape = made
    graph = af.Graph([*outputs])
    values = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)
    feeds = [values]
    found = af.evaluate(graph, feeds)
    assert [each.shape for each in found] == [tensor.shape for tensor in outputs]
    assert all(np.isfinite(each).all() for each in found)
    back = af.Graph.from_json(json.loads(json.dumps(graph.to_json(), sort_keys=True)))
    for a, b in zip(found, af.evaluate(back, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    assert back.to_json() == graph.to_json()


@settings(max_examples=150)
@given(st.data())
def test_random_indices(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))
    key = data.draw(keys(shape))
    values = np.arange(float(np.prod(shape))).reshape(shape)
    x = af.input(shape)
    expected = values[key]
    found = af.evaluate(x[key], [values])
    np.testing.assert_array_equal(found, expected if np.ndim(expected) else np.reshape(expected, 1))


@settings(max_examples=150)
@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=3, min_dims=1))
def test_random_broadcasts(shapes):
    a, b, c = (af.input(shape) for shape in shapes.input_shapes)
    assert af.where(a > 0, b, c).shape == (a + b * c).shape == shapes.result_shape


@settings(max_examples=150)
@given(hnp.array_shapes(max_dims=4, max_side=4), hnp.array_shapes(max_dims=4, max_side=4))
def test_broadcasting_agrees_with_numpy(first, second):
    a, b = af.input(first), af.input(second)
    try:
        expected = np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(af.GraphError, match="do not broadcast"):
            _ = a + b
    else:
        assert (a + b).shape == expected


def test_ops_cannot_be_declared_twice():
    from aneforge.graph.node import definition, op

    with pytest.raises(af.GraphError, match="declared twice"):
        op("relu", "x")(type("again", (), {"shape": lambda x: x}))
    with pytest.raises(af.GraphError, match="'reluu': not a graph operation; nearest: relu"):
        definition("reluu")
    with pytest.raises(af.GraphError, match="is not a plain value"):
        make(definition("sum"), (af.input((2,)),), {"axes": [0]})
