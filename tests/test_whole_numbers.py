"""Places that the engine computed, as one-hot vectors and remainders: on the engine where fp16 keeps them exactly."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import aneforge as af
from aneforge.cli.app import app

RNG = np.random.default_rng(4)


def file_of(path, nodes, shape, weights, kind=TensorProto.FLOAT):
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outs = [helper.make_tensor_value_info("y", kind, None)]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ports, outs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return str(path)


def best(keepdims=0):
    return helper.make_node("ArgMax", ["x"], ["i"], name="best", axis=1, keepdims=keepdims)


def one_hot(path, classes, depth, values=(0.0, 1.0), axis=-1):
    nodes = [best(), helper.make_node("OneHot", ["i", "depth", "values"], ["y"], name="hot", axis=axis)]
    weights = {"depth": np.array(depth), "values": np.array(values, np.float32)}
    return file_of(path, nodes, (4, classes), weights)


def remainder(path, classes, by):
    nodes = [best(), helper.make_node("Mod", ["i", "k"], ["m"], name="rest")]
    nodes += [helper.make_node("Cast", ["m"], ["y"], name="number", to=TensorProto.FLOAT)]
    return file_of(path, nodes, (4, classes), {"k": np.array(by)})


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize(("depth", "values"), [(16, (0.0, 1.0)), (7, (-2.0, 3.5))])
def test_one_hot_of_a_place_is_exact_on_the_engine(tmp_path, depth, values, axis):
    path = one_hot(tmp_path / "m.onnx", 16, depth, values, axis)
    graph = af.load(path)
    assert "host" not in {node.op for node in graph.nodes}
    x = RNG.standard_normal((4, 16)).astype(np.float32)
    (expected,) = ReferenceEvaluator(path).run(None, {"x": x})
    np.testing.assert_array_equal(af.evaluate(graph, [x])[0], expected)
    np.testing.assert_array_equal(af.compile(graph, target="m2")(x), expected)


@pytest.mark.parametrize("by", [3, -5, 1, [2, 3, 4, 2000]])
def test_the_remainder_of_a_place_is_exact_on_the_engine(tmp_path, by):
    path = remainder(tmp_path / "m.onnx", 512, by)
    graph = af.load(path)
    assert "host" not in {node.op for node in graph.nodes}
    x = RNG.standard_normal((4, 512)).astype(np.float32)
    (expected,) = ReferenceEvaluator(path).run(None, {"x": x})
    np.testing.assert_array_equal(af.evaluate(graph, [x])[0], expected)
    np.testing.assert_array_equal(af.compile(graph, target="m2")(x), expected)


def test_what_fp16_may_round_stays_on_the_host(tmp_path):
    wide = remainder(tmp_path / "wide.onnx", 4096, 3)  # places up to 4095
    large = remainder(tmp_path / "large.onnx", 64, 5000)
    zero = remainder(tmp_path / "zero.onnx", 64, [1, 2, 3, 0])
    deep = one_hot(tmp_path / "deep.onnx", 4096, 4096)
    for path in (wide, large, zero, deep):
        assert "host" in {node.op for node in af.load(path).nodes}, path


def test_an_identity_vanishes(tmp_path):
    for kind in ("Identity", "Dropout"):
        nodes = [helper.make_node("Relu", ["x"], ["a"], name="act"), helper.make_node(kind, ["a"], ["b"], name="same")]
        nodes += [helper.make_node("Exp", ["b"], ["y"], name="last")]
        graph = af.load(file_of(tmp_path / f"{kind}.onnx", nodes, (1, 4), {}))
        assert [node.op for node in graph.operations] == ["relu", "exp"]
        assert "same" in {origin.name for origin in graph.file.nodes}


def test_the_notes_of_risks_are_lines(tmp_path):
    for words in ((), ("--max-abs", "100"), ("--all",)):
        done = CliRunner().invoke(app, ["risks", "examples/detector.onnx", "--target", "m1,m2", *words])
        assert "\\n" not in done.stdout
        assert done.stdout.count("\n") > 5
