"""Origins: every node of a file is behind a node of the graph or has a reason; layers are called by their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aneforge as af
from aneforge.advice.forms import ATTENTION_FORMS
from aneforge.advice.proposals import places_of
from aneforge.graph import Graph
from aneforge.graph.forms import applied
from aneforge.graph.layer_forms import OP_FORMS
from aneforge.graph.origins import Origin, derived_names, merged
from aneforge.graph.recognise import walk
from aneforge.graph.recognise.walk import recognised
from aneforge.study.study import Study

ENCODER, DETECTOR = "examples/tiny_encoder.onnx", "examples/detector.onnx"
FILES = [(ENCODER, {"batch": 1}), (DETECTOR, None)]


def unexplained(graph: Graph, file: str) -> list[str]:
    """The nodes of an ONNX file that are behind no node of a graph and that nothing is said of."""
    behind = {origin.name for node in graph.nodes for origin in node.origins}
    explained = {origin.name for origin in graph.file.without_node(graph.nodes)}
    names = [node.name or f"{node.op_type}_{place}" for place, node in enumerate(onnx.load(file).graph.node)]
    return [name for name in names if name not in behind | explained]


@pytest.mark.parametrize(("file", "dims"), FILES)
def test_every_node_of_a_file_is_behind_a_node_or_has_a_reason(file, dims):
    graph = af.load(file, dims)
    assert not unexplained(graph, file)
    assert all(reason != "nothing reads its result" for reason in graph.file.without_node(graph.nodes).values())
    assert all(node.origins for node in graph.operations)
    stored = onnx.load(file).graph.node
    assert len(graph.file.nodes) == len(stored)
    assert {origin.kind for origin in graph.file.nodes} == {node.op_type for node in stored}


@pytest.mark.parametrize("target", ["m1", "m5"])
def test_layers_of_attention_are_called_by_their_own_nodes(target):
    """Softmax_1 was called reshape, and the scores' product matmul_0."""
    graph = af.load(ENCODER, {"batch": 1})
    kinds = {node.name: node.op_type for node in onnx.load(ENCODER).graph.node}
    split = af.partition(graph, target)
    layers = [layer for program in split.programs.values() for layer in program.layers]
    by_kind = {"softmax": {"Softmax"}, "matmul": {"MatMul"}, "gelu": {"Gelu"}}
    seen = set()
    for layer in layers:
        for op in layer.ops:
            if op.kind in by_kind:
                seen.add(op.kind)
                assert by_kind[op.kind] & {kinds.get(source) for source in layer.sources}, (op.kind, layer.sources)
    assert {"softmax", "matmul"} <= seen
    named = {source for layer in layers for source in layer.sources}
    assert {f"/encoder/layer.{number}/attention/Softmax" for number in (0, 1)} <= named


def test_a_rule_that_loses_origins_is_noticed(monkeypatch):
    """What the checks above would say if recognition dropped the origins of what it builds."""
    monkeypatch.setattr(walk, "stamp", lambda replaced, built, result: None)
    graph = af.load(ENCODER, {"batch": 1})
    lost = "nothing reads its result"
    assert lost in graph.file.without_node(graph.nodes).values()
    assert not all(node.origins for node in graph.operations)


def written(tmp_path: Path, nodes: list, weights: dict[str, np.ndarray]) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "test", [x], [y], stored)
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), file)
    return file


def test_a_layer_that_was_spelled_out_comes_from_all_its_nodes(tmp_path):
    """A division by a constant, an error function and products are one gelu; its bias sum is part of a convolution."""
    weights = {
        "w": np.ones((8, 8, 1, 1), np.float32),
        "b": np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1),
        "root": np.float32(2**0.5).reshape(()),
        "one": np.float32(1).reshape(()),
        "half": np.float32(0.5).reshape(()),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Add", ["c", "b"], ["d"], "bias"),
        helper.make_node("Identity", ["d"], ["d2"], "same"),
        helper.make_node("Div", ["d2", "root"], ["e"], "div"),
        helper.make_node("Erf", ["e"], ["f"], "erf"),
        helper.make_node("Add", ["f", "one"], ["g"], "plus"),
        helper.make_node("Mul", ["d2", "g"], ["h"], "times"),
        helper.make_node("Mul", ["h", "half"], ["y"], "halved"),
    ]
    graph = af.load(written(tmp_path, nodes, weights))
    by_op = {node.op: [origin.name for origin in node.origins] for node in graph.operations}
    assert by_op["gelu"] == ["div", "erf", "plus", "times", "halved"]
    assert by_op["conv"] == ["conv", "bias"]
    gone = {origin.name: reason for origin, reason in graph.file.without_node(graph.nodes).items()}
    assert gone == {"same": "it hands on what it reads"}


def test_equal_nodes_that_become_one_come_from_both(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Relu", ["x"], ["b"], "second"),
        helper.make_node("Sigmoid", ["a"], ["c"], "bend"),
        helper.make_node("Mul", ["c", "b"], ["y"], "gate"),
    ]
    graph = af.load(written(tmp_path, nodes, {}))
    (relu,) = [node for node in graph.operations if node.op == "relu"]
    assert [origin.name for origin in relu.origins] == ["first", "second"]
    assert not unexplained(graph, str(tmp_path / "model.onnx"))


def test_origins_are_saved_with_a_graph(tmp_path):
    graph = af.load(ENCODER, {"batch": 1})
    graph.save(tmp_path / "graph.af")
    again = af.load(tmp_path / "graph.af")
    assert [node.origins for node in again.nodes] == [node.origins for node in graph.nodes]
    assert again.file == graph.file
    assert sorted(again.names().values()) == sorted(graph.names().values())


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document["nodes"][-1].update(origins=[10_000]),
        lambda document: document["nodes"][-1].update(origins=7),
        lambda document: document.update(file={"nodes": [["x"]], "reasons": {}}),
        lambda document: document.update(file=[]),
    ],
)
def test_a_damaged_list_of_origins_is_refused(damage):
    document = af.load(ENCODER, {"batch": 1}).to_json()
    damage(document)
    with pytest.raises(af.AneforgeError, match="file"):
        Graph.from_json(document)


def test_names_are_those_of_the_node_that_is_the_op():
    softmax = (Origin(3, "probs", "Softmax"),)
    x = af.input((2, 8))
    moved = x.transpose([1, 0])
    bent = moved.softmax(0)
    back = bent.transpose([1, 0])
    for node in (moved, bent, back):
        node.origins = softmax
    assert {node.op: name for node, name in derived_names([moved, bent])} == {
        "transpose": "probs.transpose",
        "softmax": "probs",
    }
    graph = Graph([back])
    names = graph.names()
    assert [names[node.uid] for node in graph] == ["input_0", "probs.transpose", "probs", "probs.transpose_0"]
    other = (Origin(1, "scale", "Mul"),)
    assert merged(softmax, other, softmax) == (*other, *softmax)


def test_recognition_without_a_file_names_nothing():
    x = af.input((2, 8), name="x")
    graph = recognised(Graph([x.relu().tanh().named("y")])).graph
    assert graph.file is None
    assert [node.name for node in graph.nodes] == ["x", None, "y"]


def test_a_form_that_is_applied_comes_from_what_it_replaces():
    graph = af.load(ENCODER, {"batch": 1})
    study = Study(graph, "m5")
    places = [places for places in places_of(study, [*ATTENTION_FORMS, *OP_FORMS]) if places.sites]
    assert places
    for group in places:
        changed = applied(study.graph, group.sites)
        assert all(node.origins for node in changed.operations)
        assert changed.file is study.graph.file


def test_a_test_for_nan_that_recognition_drops_has_a_reason(tmp_path):
    """PyTorch's exporters write a softmax whose NaNs become zero; a softmax of the engine has none."""
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["m"], "scores"),
        helper.make_node("Softmax", ["m"], ["s"], "soft", axis=-1),
        helper.make_node("IsNaN", ["s"], ["n"], "test"),
        helper.make_node("Where", ["n", "zero", "s"], ["y"], "guard"),
    ]
    graph = af.load(written(tmp_path, nodes, {"zero": np.float32(0).reshape(())}))
    gone = {origin.name: reason for origin, reason in graph.file.without_node(graph.nodes).items()}
    assert gone == {"test": "it changes nothing", "guard": "it changes nothing"}


def test_views_with_many_axes_are_behind_what_moves_them(tmp_path):
    """Windows of an image: the view of six axes and the one back belong to the move between them."""
    shapes = {"cut": np.array([1, 8, 2, 2, 2, 2], np.int64), "back": np.array([4, 8, 2, 2], np.int64)}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "bend"),
        helper.make_node("Reshape", ["r", "cut"], ["a"], "windows"),
        helper.make_node("Transpose", ["a"], ["b"], "move", perm=[0, 2, 4, 1, 3, 5]),
        helper.make_node("Reshape", ["b", "back"], ["y"], "joined"),
    ]
    graph = af.load(written(tmp_path, nodes, shapes))
    assert not graph.file.without_node(graph.nodes)
    moves = {origin.name for node in graph.operations if node.op == "transpose" for origin in node.origins}
    assert moves == {"windows", "move"}
    assert "windows" not in {origin.name for node in graph.operations if node.op == "relu" for origin in node.origins}
