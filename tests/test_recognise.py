"""Spellings that exporters use, and the one graph that all of them become."""

from __future__ import annotations

import math

import numpy as np
import pytest

import aneforge as af
from aneforge.graph.recognise import recognised
from aneforge.graph.recognise.table import ALL_RULES


def settled(out: af.Tensor) -> af.Graph:
    return recognised(af.Graph([out])).graph


def ops(graph: af.Graph) -> list[str]:
    return [node.op for node in graph.operations]


def same_numbers(before: af.Tensor, after: af.Graph, tolerance: float = 1e-6) -> None:
    rng = np.random.default_rng(1)
    feeds = [rng.uniform(-3, 3, port.shape) for port in after.inputs]
    want, found = af.evaluate(before, feeds), af.evaluate(after.outputs[0], feeds)
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


def x4() -> af.Tensor:
    return af.input((1, 8, 4, 6))


def rows() -> af.Tensor:
    return af.input((1, 5, 16))


def gelu_tanh(x: af.Tensor, cube: af.Tensor) -> af.Tensor:
    inner = (x + cube.linear_activation(0.044715, 0.0)).linear_activation(math.sqrt(2 / math.pi), 0.0)
    return (inner.tanh() + 1.0) * (x * 0.5)


def erf_of(x: af.Tensor) -> af.Tensor:
    return x.linear_activation(1 / math.sqrt(2), 0.0).erf()


ACTIVATIONS = {
    "silu": (lambda x: x * x.sigmoid(), ["silu"]),
    "silu, gate first": (lambda x: x.sigmoid() * x, ["silu"]),
    "silu by division stays as it is, a cure (C77)": (
        lambda x: x / ((-x).exp() + 1.0),
        ["mul", "exp", "add", "real_div"],
    ),
    "gelu, as the script exporter writes it": (lambda x: (x * (erf_of(x) + 1.0)) * 0.5, ["gelu"]),
    "gelu, half of x first": (lambda x: (x * 0.5) * (erf_of(x) + 1.0), ["gelu"]),
    "gelu, half of the gate": (lambda x: x * ((erf_of(x) + 1.0) * 0.5), ["gelu"]),
    "gelu, as a sum of halves": (lambda x: x * (erf_of(x) * 0.5 + 0.5), ["gelu"]),
    "gelu by tanh, cube as a power": (lambda x: gelu_tanh(x, x.pow(3.0)), ["gelu"]),
    "gelu by tanh, cube as products": (lambda x: gelu_tanh(x, x * x * x), ["gelu"]),
    "gelu by tanh, x in front": (
        lambda x: (
            (((x * math.sqrt(2 / math.pi)) * ((x * x).linear_activation(0.044715, 0.0) + 1.0)).tanh() + 1.0)
            * (x * 0.5)
        ),
        ["gelu"],
    ),
    "hard sigmoid": (lambda x: (x + 3.0).relu6().linear_activation(1 / 6, 0.0), ["sigmoid_hard"]),
    "hard sigmoid by clip": (lambda x: x.linear_activation(1 / 6, 0.5).clip(0.0, 1.0), ["sigmoid_hard"]),
    "hard swish": (lambda x: (x * (x + 3.0).relu6()).linear_activation(1 / 6, 0.0), ["sigmoid_hard", "mul"]),
    "hard swish of the rest": (
        lambda x: x.thresholded_relu(-3.0) * x.thresholded_relu(-3.0).sigmoid_hard(1 / 6, 0.5),
        ["sigmoid_hard", "mul"],
    ),
    "softplus": (lambda x: (x.exp() + 1.0).log(), ["softplus"]),
    "not silu": (lambda x: x * (x * 1.5).sigmoid(), ["mul", "sigmoid", "mul"]),
    "not gelu: another factor": (
        lambda x: (x * (erf_of(x) + 1.0)) * 0.25,
        ["linear_activation", "erf", "add", "mul", "mul"],
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    build, wanted = ACTIVATIONS[name]
    before = build(x4())
    graph = settled(before)
    assert ops(graph) == wanted
    same_numbers(before, graph, 1e-3)


def whitened(x, axes, eps=1e-5):
    centred = x - x.mean(axes)
    return centred / (centred.square().mean(axes) + eps).sqrt()


def by_reciprocal(x, axes, eps=1e-5):
    centred = x - x.mean(axes)
    return centred * (centred * centred).mean(axes).rsqrt(eps)


def by_sums(x):
    centred = x - x.sum(2) * (1 / 16)
    return centred / (centred.square().sum(2) * (1 / 16) + 1e-3).sqrt()


def over_its_root(x):
    return x * x.square().mean(2).rsqrt(1e-5)


def divided_by_its_root(x):
    return x / ((x * x).mean(2) + 1e-3).sqrt()


GAIN, OFFSET = np.linspace(0.5, 2, 16), np.linspace(-1, 1, 16)
CHANNEL_GAIN = np.linspace(0.5, 2, 8).reshape(1, 8, 1, 1)

NORMS = {
    "layer norm": (lambda: whitened(rows(), 2) * af.const(GAIN) + af.const(OFFSET), ["layer_norm"]),
    "layer norm, gain first": (lambda: af.const(GAIN) * by_reciprocal(rows(), 2), ["layer_norm"]),
    "layer norm by sums": (lambda: by_sums(rows()), ["layer_norm"]),
    "rms norm": (lambda: over_its_root(rows()) * af.const(GAIN), ["rms_norm"]),
    "rms norm by division": (lambda: divided_by_its_root(rows()), ["rms_norm"]),
    "channel layer norm": (lambda: whitened(x4(), 1) * af.const(CHANNEL_GAIN), ["channel_layer_norm"]),
    "instance norm": (lambda: whitened(x4(), (2, 3)), ["instance_norm"]),
    "group norm of everything": (lambda: whitened(x4(), (1, 2, 3)), ["group_norm"]),
    "group norm, as coremltools writes it": (
        lambda: whitened(x4().reshape(1, 4, 2, 4, 6), (2, 3, 4)).reshape(1, 8, 4, 6) * af.const(CHANNEL_GAIN),
        ["group_norm"],
    ),
    "group norm, as an instance norm between reshapes": (
        lambda: (
            af.instance_norm(x4().reshape(1, 4, 1, 48), np.ones(4), np.zeros(4), 1e-5).reshape(1, 8, 4, 6)
            * af.const(CHANNEL_GAIN)
            + af.const(CHANNEL_GAIN)
        ),
        ["group_norm"],
    ),
    "no norm: other axes": (
        lambda: whitened(x4(), 2),
        ["mean", "sub", "square", "mean", "add", "sqrt", "real_div"],
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms(name):
    build, wanted = NORMS[name]
    before = build()
    graph = settled(before)
    assert ops(graph) == wanted
    same_numbers(before, graph, 2e-3)


def heads(x: af.Tensor, place: int) -> af.Tensor:
    """The script exporter: one turn of five axes, then a part of it."""
    turned = x.reshape(1, 5, 3, 4, 8).transpose([2, 0, 3, 1, 4])
    return turned.slice_by_size([place, 0, 0, 0, 0], [1, 1, 4, 5, 8]).reshape(1, 4, 5, 8)


def cut_heads(x: af.Tensor, place: int) -> af.Tensor:
    """Another exporter: the part first, a turn of three axes around a squeeze."""
    part = x.reshape(1, 5, 3, 4, 8)[:, :, place : place + 1]
    return part.reshape(5, 4, 8).transpose([1, 0, 2]).reshape(1, 4, 5, 8)


def attention(x: af.Tensor, head, scale: str) -> af.Tensor:
    q, k, v = (head(x, place) for place in range(3))
    if scale == "both":
        scores = q.linear_activation(8**-0.25, 0.0) @ k.mT.linear_activation(8**-0.25, 0.0)
    elif scale == "scores":
        scores = (q @ k.mT).linear_activation(8**-0.5, 0.0)
    elif scale == "division":
        scores = (q @ k.mT) / math.sqrt(8)
    else:
        scores = q.linear_activation(8**-0.5, 0.0) @ k.transpose([0, 1, 3, 2])
    return (scores.softmax(-1) @ v).transpose([0, 2, 1, 3]).reshape(1, 5, 32)


def shape_of(graph: af.Graph) -> list[tuple]:
    places = {node.uid: place for place, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        attrs = tuple((key, value) for key, value in node.signature.attrs if key not in ("alpha", "eps"))
        lines.append((node.op, node.shape, attrs, tuple(places[operand.uid] for operand in node.inputs)))
    return [line for line in lines if line[0] != "const"]


@pytest.mark.parametrize("scale", ["both", "scores", "queries"])
@pytest.mark.parametrize("head", [heads, cut_heads])
def test_attention_is_one_graph_in_every_spelling(head, scale):
    x = af.input((1, 5, 96))
    wanted = settled(attention(af.input((1, 5, 96)), heads, "queries"))
    before = attention(x, head, scale)
    graph = settled(before)
    assert shape_of(graph) == shape_of(wanted)
    same_numbers(before, graph, 1e-4)


def test_a_scale_by_division_is_the_same_program():
    x = af.input((1, 5, 96))
    graph = settled(attention(x, heads, "division"))
    assert ops(graph).count("linear_activation") + ops(graph).count("mul") == 1


def test_equal_nodes_become_one():
    x = af.input((1, 8))
    graph = settled(x.exp() + x.exp())
    assert ops(graph) == ["exp", "add"]


def test_random_numbers_and_ports_are_never_merged():
    x, y = af.input((1, 8), name="x"), af.input((1, 8), name="y")
    graph = settled(x.reshape(1, 8) * 2.0 + y.reshape(1, 8))
    assert [port.name for port in graph.inputs] == ["x", "y"]


def test_outputs_keep_their_names_and_their_number():
    x = af.input((1, 8), name="x")
    first, second = x.relu().named("first"), x.relu().named("second")
    graph = recognised(af.Graph([first, second, x.reshape(1, 8).named("third")])).graph
    assert [output.name for output in graph.outputs] == ["first", "second", "third"]
    found = af.evaluate(list(graph.outputs), [np.full((1, 8), -2.0)])
    assert [float(value[0, 0]) for value in found] == [0.0, 0.0, -2.0]


def test_a_softmax_without_a_whole_masked_row_needs_no_guard():
    def guarded(mask: np.ndarray) -> af.Graph:
        q, k = af.input((1, 2, 4, 8)), af.input((1, 2, 8, 4))
        soft = (q @ k + af.const(mask)).softmax(-1)
        return settled(af.where(soft.not_equal(soft), af.const(np.zeros(())), soft))

    causal = np.triu(np.full((4, 4), -np.inf), 1)
    assert "select" not in ops(guarded(causal))
    causal[2] = -np.inf
    assert "select" in ops(guarded(causal))


def test_recognition_is_settled_after_one_walk():
    """A second walk over any of these finds nothing more to do."""
    for build, _ in [*((lambda b=b: b(x4()), w) for b, w in ACTIVATIONS.values()), *NORMS.values()]:
        once = recognised(af.Graph([build()])).graph
        assert not recognised(once).counts


def test_every_rule_is_named_once_and_explains_itself():
    names = [rule.name for rule in ALL_RULES]
    assert len(set(names)) == len(names)
    assert all(rule.doc.endswith(".") for rule in ALL_RULES)


@pytest.mark.parametrize("padding", [0, 1])
def test_windows_that_are_gathered_are_one_convolution(padding):
    """As the newer ONNX exporter writes ``unfold``: rows by index, columns by index, a transpose."""
    x = af.input((1, 4, 9, 9))
    source = x.pad([(0, 0), (0, 0), (padding, padding), (padding, padding)]) if padding else x
    places = (source.shape[2] - 3) // 2 + 1
    index = [offset + 2 * place for offset in range(3) for place in range(places)]
    rows = af.gather(source, index, axis=2).reshape(1, 4, 3, places, source.shape[3])
    columns = af.gather(rows, index, axis=4).reshape(12, places, 3, places)
    before = columns.transpose([0, 2, 1, 3]).reshape(1, 36, places * places)
    graph = settled(before)
    assert ops(graph) == ["conv", "reshape"]
    same_numbers(before, graph)
