"""ONNX files: graphs that mean the same, names that stay, and errors that name file and node."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.cli.check import load_model
from aneforge.frontends import LoadError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

RNG = np.random.default_rng(0)


def half(*shape, scale=0.2, mean=0.0):
    """Numbers that fp16 holds, so that both sides compute with the same weights."""
    return (RNG.standard_normal(shape) * scale + mean).astype(np.float16).astype(np.float32)


def saved(tmp_path, nodes, inputs, outputs, weights=None, opset=21, name="model.onnx"):
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, shape) for port, shape in inputs.items()]
    results = [helper.make_tensor_value_info(port, TensorProto.FLOAT, None) for port in outputs]
    stored = [numpy_helper.from_array(np.asarray(array), key) for key, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", ports, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, str(tmp_path / name))
    return tmp_path / name


def same(file, tolerance=1e-5, **loading):
    """The loaded graph in float64 against the reference evaluator."""
    graph = af.load(file, **loading)
    names = graph.names()
    feeds = {names[node.uid]: half(*node.shape, scale=1.0) for node in graph.inputs}
    found = af.evaluate(graph, [feeds[names[node.uid]].astype(np.float64) for node in graph.inputs])
    found = found if isinstance(found, list) else [found]
    for one, two in zip(found, ReferenceEvaluator(str(file)).run(None, feeds), strict=True):
        np.testing.assert_allclose(np.asarray(one), two, rtol=tolerance, atol=tolerance)
    return graph


def cnn(tmp_path):
    node = helper.make_node
    weights = {"w1": half(8, 3, 3, 3), "b1": half(8), "w2": half(8, 1, 3, 3), "fc": half(10, 8), "fb": half(10)}
    weights |= {"g": half(8, mean=1.0), "s": half(8), "m": half(8), "v": np.maximum(half(8, mean=1.0), 0.25)}
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], "stem/conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "g", "s", "m", "v"], ["n1"], "stem/norm"),
        node("Relu", ["n1"], ["r1"], "stem/relu"),
        node("Conv", ["r1", "w2"], ["c2"], "block/depthwise", group=8, auto_pad="SAME_UPPER"),
        node("Add", ["c2", "r1"], ["a"], "block/add"),
        node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["q"], "head/pool"),
        node("Flatten", ["q"], ["f"], "head/flatten"),
        node("Gemm", ["f", "fc", "fb"], ["l"], "head/fc", transB=1),
        node("Softmax", ["l"], ["y"], "head/softmax"),
    ]
    return saved(tmp_path, nodes, {"x": [1, 3, 16, 16]}, ["y"], weights)


def test_a_small_network_means_the_same_and_keeps_its_names(tmp_path):
    graph = same(cnn(tmp_path))
    names = set(graph.names().values())
    assert {"x", "stem/conv", "stem/norm", "block/depthwise", "head/fc", "y"} <= names
    report = af.preflight(graph, "M1")
    assert report.ok


def test_the_same_bits_as_the_graph_written_by_hand(tmp_path):
    weight = half(4, 3, 3, 3)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    loaded = af.load(saved(tmp_path, nodes, {"x": [1, 3, 8, 8]}, ["y"], {"w": weight}))
    by_hand = af.conv(af.input((1, 3, 8, 8), name="x"), weight, pad=1).relu().named("y")
    data = half(1, 3, 8, 8, scale=1.0)
    for chip in ("m1", "m5"):
        one, two = (af.compile(each, target=chip)(data) for each in (loaded, by_hand))
        np.testing.assert_array_equal(one, two)


def test_attention_with_shapes_computed_in_the_graph(tmp_path):
    """Reshapes whose targets come from Shape, Gather, Unsqueeze and Concat are resolved to numbers."""
    node = helper.make_node
    weights = {"wq": half(32, 32), "wk": half(32, 32), "wv": half(32, 32), "g": half(32, mean=1.0), "b": half(32)}
    weights |= {"zero": np.array(0), "one": np.array(1), "axis": np.array([0]), "heads": np.array([4, 8])}
    weights |= {"scale": np.array(0.375, np.float32)}
    nodes = [
        node("LayerNormalization", ["x", "g", "b"], ["n"], "norm", axis=-1),
        node("Shape", ["n"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Unsqueeze", ["batch", "axis"], ["batch1"]),
        node("Unsqueeze", ["length", "axis"], ["length1"]),
        node("Concat", ["batch1", "length1", "heads"], ["split"], axis=0),
    ]
    for each in "qkv":
        nodes += [
            node("MatMul", ["n", f"w{each}"], [f"{each}0"]),
            node("Reshape", [f"{each}0", "split"], [f"{each}1"]),
        ]
        perm = [0, 2, 3, 1] if each == "k" else [0, 2, 1, 3]
        nodes.append(node("Transpose", [f"{each}1"], [f"{each}2"], perm=perm))
    nodes += [
        node("MatMul", ["q2", "k2"], ["s0"]),
        node("Mul", ["s0", "scale"], ["s1"]),
        node("Softmax", ["s1"], ["s2"], axis=-1),
        node("MatMul", ["s2", "v2"], ["o0"]),
        node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "shape"], ["o2"]),
        node("Add", ["o2", "x"], ["y"], "residual"),
    ]
    graph = same(saved(tmp_path, nodes, {"x": [2, 6, 32]}, ["y"], weights))
    assert not any(node.op in ("gather", "concat") for node in graph)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("counting", ["half_pixel", "asymmetric", "align_corners"])
def test_resizes_of_every_kind(tmp_path, mode, counting):
    weights = {"sizes": np.array([1, 2, 9, 5])}
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode=mode, coordinate_transformation_mode=counting
    )
    graph = af.load(saved(tmp_path, [node], {"x": [1, 2, 4, 7]}, ["y"], weights))
    data = half(1, 2, 4, 7, scale=1.0)
    want = ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, {"x": data})[0]
    np.testing.assert_allclose(af.evaluate(graph, [data.astype(np.float64)])[0], want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("condition", [True, False])
def test_a_known_condition_takes_its_branch(tmp_path, condition):
    """The condition may be computed, as long as it is known: here from a shape."""

    def branch(kind):
        result = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(kind, ["x"], ["out"], "inner")], kind, [], [result])

    weights = {"size": np.array([4 if condition else 5]), "first": np.array([0])}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["extent"]),
        helper.make_node("Equal", ["extent", "size"], ["is"]),
        helper.make_node("If", ["is"], ["y"], "choice", then_branch=branch("Relu"), else_branch=branch("Neg")),
    ]
    graph = same(saved(tmp_path, nodes, {"x": [4, 3]}, ["y"], weights))
    assert len(graph.operations) == 1


def test_ops_that_the_standard_defines_by_others_are_inlined(tmp_path):
    """Attention has no rule here: the standard's own function stands in, under the caller's name."""
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], "layer/attention", q_num_heads=2, kv_num_heads=2)
    shapes = {"q": [1, 5, 16], "k": [1, 5, 16], "v": [1, 5, 16]}
    graph = same(saved(tmp_path, [node], shapes, ["y"], opset=23), tolerance=2e-3)
    assert any(name.startswith("layer/attention/") for name in graph.names().values())


def test_symbolic_dimensions_take_values(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    file = saved(tmp_path, nodes, {"x": ["batch", 4]}, ["y"])
    with pytest.raises(LoadError, match=r"model.onnx: dimension 0 of input 'x' is 'batch'.*dims="):
        af.load(file)
    assert af.load(file, dims={"batch": 3}).inputs[0].shape == (3, 4)
    with pytest.raises(LoadError, match="no symbolic dimension 'length'"):
        af.load(file, dims={"batch": 3, "length": 2})


def test_weights_in_another_file_are_mapped_and_stay_inside_the_folder(tmp_path):
    weight = half(64, 64)
    file = saved(tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 64]}, ["y"], {"w": weight})
    model = onnx.load(str(file))
    onnx.save(model, str(file), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").is_file()
    same(file)
    (tmp_path / "weights.bin").rename(tmp_path / "moved.bin")
    with pytest.raises(LoadError, match=r"weight 'w' lies in 'weights.bin', which is not there"):
        af.load(file)
    outside = onnx.load(str(file), load_external_data=False)
    for entry in outside.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../secret.bin"
    (tmp_path.parent / "secret.bin").write_bytes(weight.tobytes())
    (tmp_path / "evil.onnx").write_bytes(outside.SerializeToString())
    with pytest.raises(LoadError, match=r"outside the model's folder"):
        af.load(tmp_path / "evil.onnx")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([helper.make_node("NonMaxSuppression", ["x", "x"], ["y"], "nms")], r"nms \(NonMaxSuppression\): no rule"),
        ([helper.make_node("Relu", ["missing"], ["y"], "r")], r"r \(Relu\): reads 'missing'"),
        ([helper.make_node("Transpose", ["x"], ["y"], "t", perm=[0, 0])], r"t \(Transpose\)"),
        ([helper.make_node("Custom", ["x"], ["y"], "c", domain="com.example")], r"domain 'com.example'"),
        ([helper.make_node("Relu", ["x"], ["z"], "r")], r"output 'y' is made by no node"),
    ],
)
def test_what_cannot_be_read_names_the_file_and_the_node(tmp_path, nodes, message):
    with pytest.raises(LoadError, match=rf"model.onnx: .*{message}" if "output" not in message else message):
        af.load(saved(tmp_path, nodes, {"x": [2, 4]}, ["y"]))


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"\x00\x01 not a model")
    for name, message in (("broken.onnx", "broken.onnx: not an ONNX model"), ("absent.onnx", "no file")):
        with pytest.raises(LoadError, match=message):
            af.load(tmp_path / name)
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(LoadError, match="opset 5"):
        af.load(saved(tmp_path, nodes, {"x": [2, 4]}, ["y"], opset=5))


def test_the_commands_take_onnx_files(tmp_path, capsys):
    from aneforge.cli import check

    assert len(load_model(str(cnn(tmp_path))).outputs) == 1
    file = saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"], "act")], {"x": ["batch", 4]}, ["y"])
    assert check.run(check.ModelFile(str(file), ["batch=2"]), "m1,m5", "reject", False) == 0
    assert "yes" in capsys.readouterr().out
    for told, message in ((["batch"], "--dim takes NAME=SIZE"), (["batch=x"], "NAME=SIZE"), ([], "--dim batch=1")):
        with pytest.raises(af.LoadError if not told else check.AneforgeError, match=message):
            check.load_model(check.ModelFile(str(file), told))


def test_the_standards_own_node_tests_are_passed_or_refused_and_never_wrong():
    """bench/onnx_coverage.py prints them by name; what is passed today stays passed."""
    place = Path(__file__).resolve().parent.parent / "bench" / "onnx_coverage.py"
    spec = importlib.util.spec_from_file_location("onnx_coverage", place)
    assert spec is not None
    coverage = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(coverage)
    told = coverage.outcomes()
    wrong = {name: reason for name, (label, reason) in told.items() if label == "wrong"}
    assert not wrong
    assert sum(label == "passed" for label, _ in told.values()) >= 810
    assert all(reason for label, reason in told.values() if label == "unsupported")
