"""ONNX files: graphs that mean the same, names that stay, and errors that name file and node."""

from __future__ import annotations

import importlib.util
import mmap
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.cli.options import load_model
from aneforge.errors import LoadError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

RNG = np.random.default_rng(0)
ROOT = Path(__file__).resolve().parent.parent


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


def same(file, tolerance=1e-5, feeds=None, **loading):
    """The loaded graph in float64 against the reference evaluator."""
    graph = af.load(file, **loading)
    names = graph.names()
    feeds = feeds or {names[node.uid]: half(*node.shape, scale=1.0) for node in graph.inputs}
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
    """SwiGLU has no rule here: the standard's own function stands in, under the caller's name."""
    node = helper.make_node("SwiGLU", ["a", "b"], ["y"], "layer/gate")
    shapes = {"a": [2, 5, 16], "b": [2, 5, 16]}
    graph = same(saved(tmp_path, [node], shapes, ["y"], opset=onnx.defs.onnx_opset_version()))
    assert any(name.startswith("layer/gate/") for name in graph.names().values())


def test_a_line_longer_than_any_width_stays_an_image(tmp_path):
    """The first dense layer of a VGG: 25088 numbers in a line, which an M1 has no room for; its image has."""
    node = helper.make_node
    weights = {"w": half(20, 25088, scale=0.02), "b": half(20)}
    nodes = [node("Flatten", ["x"], ["f"], "flatten"), node("Gemm", ["f", "w", "b"], ["y"], "fc6", transB=1)]
    graph = same(saved(tmp_path, nodes, {"x": [1, 512, 7, 7]}, ["y"], weights), tolerance=1e-4)
    assert [each.op for each in graph.operations] == ["conv", "reshape"]
    assert af.preflight(graph, "m1").ok
    data = half(1, 512, 7, 7, scale=1.0)
    want = ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, {"x": data})[0]
    np.testing.assert_allclose(af.compile(graph, target="m1")(data), want, rtol=2e-2, atol=2e-2)


def test_attention_is_products_and_a_softmax(tmp_path):
    """The conversion route refuses the engine's own layer (S26), so that it is a choice and no default."""
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], "layer/attention", q_num_heads=2, kv_num_heads=2)
    shapes = {"q": [1, 5, 16], "k": [1, 5, 16], "v": [1, 5, 16]}
    graph = same(saved(tmp_path, [node], shapes, ["y"], opset=23), tolerance=2e-3)
    kinds = [each.op for each in graph]
    assert "sdpa" not in kinds
    assert (kinds.count("matmul"), kinds.count("softmax")) == (2, 1)


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
    with pytest.raises(LoadError, match=r"weight 'w' needs the file 'weights.bin', which does not exist"):
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
        (
            [helper.make_node("NonMaxSuppression", ["x", "x"], ["y"], "nms")],
            r"nms \(NonMaxSuppression\): the size of the result depends on the data",
        ),
        (
            [helper.make_node("NonZero", ["x"], ["y"], "nz")],
            r"nz \(NonZero\): the size of the result depends on the data",
        ),
        ([helper.make_node("Relu", ["missing"], ["y"], "r")], r"r \(Relu\): reads 'missing'"),
        ([helper.make_node("Transpose", ["x"], ["y"], "t", perm=[0, 0])], r"t \(Transpose\)"),
        ([helper.make_node("Custom", ["x"], ["y"], "c", domain="com.example")], r"domain 'com.example'"),
        ([helper.make_node("Relu", ["x"], ["z"], "r")], r"output 'y' is made by no operation"),
    ],
)
def test_what_cannot_be_read_names_the_file_and_the_node(tmp_path, nodes, message):
    with pytest.raises(LoadError, match=rf"model.onnx: .*{message}" if "output" not in message else message):
        af.load(saved(tmp_path, nodes, {"x": [2, 4]}, ["y"]))


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"\x00\x01 not a model")
    for name, message in (
        ("broken.onnx", "broken.onnx: not an ONNX model"),
        ("absent.onnx", "absent.onnx': no such file"),
    ):
        with pytest.raises(LoadError, match=message):
            af.load(tmp_path / name)
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(LoadError, match="opset 5"):
        af.load(saved(tmp_path, nodes, {"x": [2, 4]}, ["y"], opset=5))


def test_the_commands_take_onnx_files(tmp_path, capsys):
    from aneforge.cli import check
    from aneforge.cli.options import ModelFile

    assert len(load_model(str(cnn(tmp_path))).outputs) == 1
    file = saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"], "act")], {"x": ["batch", 4]}, ["y"])
    assert check.run(ModelFile(str(file), ["batch=2"]), "m1,m5", "reject", False) == 0
    assert "yes" in capsys.readouterr().out
    for told, message in (
        (["batch"], "the form is NAME=SIZE"),
        (["batch=x"], "NAME=SIZE"),
        ([], "--dim batch=1"),
    ):
        with pytest.raises(af.LoadError if not told else af.AneforgeError, match=message):
            load_model(ModelFile(str(file), told))


# What only the host can do.


def ports(**kinds):
    return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in kinds.items()]


def written(tmp_path, nodes, inputs, outputs, weights=None, opset=21, functions=(), domains=()):
    stored = [numpy_helper.from_array(np.asarray(array), key) for key, array in (weights or {}).items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "net", inputs, results, stored)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    onnx.save(model, str(tmp_path / "model.onnx"))
    return tmp_path / "model.onnx"


def test_an_embedding_of_token_numbers_runs_on_the_host_and_the_rest_on_the_engine(tmp_path):
    """input_ids and attention_mask are integers, as exporters write them."""
    node = helper.make_node
    weights = {"table": half(50, 16), "w": half(16, 16), "axes": np.array([2])}
    nodes = [
        node("Gather", ["table", "ids"], ["e"], "embed"),
        node("Unsqueeze", ["mask", "axes"], ["m1"], "mask/unsqueeze"),
        node("Cast", ["m1"], ["m2"], "mask/cast", to=TensorProto.FLOAT),
        node("MatMul", ["e", "w"], ["h"], "layer/matmul"),
        node("Mul", ["h", "m2"], ["y"], "layer/mask"),
    ]
    kinds = ports(ids=(TensorProto.INT64, [1, 6]), mask=(TensorProto.INT64, [1, 6]))
    file = written(tmp_path, nodes, kinds, ["y"], weights)
    feeds = {"ids": np.arange(6).reshape(1, 6) * 7, "mask": np.array([[1, 1, 1, 1, 0, 0]])}
    graph = same(file, feeds=feeds)
    hosts = {each.name: each for each in graph if each.op == "host"}
    assert set(hosts) == {"embed", "mask/unsqueeze", "mask/cast"}
    assert [each.dtype for each in hosts.values()] == ["fp16", "int32", "fp16"]
    report = af.preflight(graph, "m1")
    assert not report.ok
    assert {each.name for each in report.reject} == {"embed"}  # the other two only look at the mask
    assert [region.device for region in af.partition(graph, "m1").regions] == ["host", "engine"]
    told = next(each for each in report.reject if each.name == "embed")
    assert "Gather runs on the host: it computes with integers, which the engine does not" in told.message
    assert told.evidence.confidence == "measured"
    assert {"layer/matmul", "y"} <= {each.name for each in report.native}
    assert str(af.Graph.from_json(graph.to_json())).count("host(") == 3


def test_what_a_rule_refuses_runs_on_the_host_with_its_reason(tmp_path):
    """A determinant has a fixed shape and no form on the engine."""
    nodes = [helper.make_node("Det", ["x"], ["d"], "det"), helper.make_node("Exp", ["d"], ["y"])]
    graph = same(saved(tmp_path, nodes, {"x": [3, 4, 4]}, ["y"]), tolerance=1e-4)
    (host,) = [each for each in graph if each.op == "host"]
    assert (host.name, host.attrs["kind"]) == ("det", "Det")
    assert host.attrs["reason"] == "the engine has no op for a determinant"


def test_single_numbers_stay_apart_from_lines_of_one(tmp_path):
    """A mean of everything has no axes; unsqueezing it twice gives two."""
    weights = {"axes": np.array([0, 1])}
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], "mean", keepdims=0),
        helper.make_node("Unsqueeze", ["m", "axes"], ["u"], "unsqueeze"),
        helper.make_node("Sub", ["x", "u"], ["y"], "centre"),
    ]
    graph = same(saved(tmp_path, nodes, {"x": [3, 4]}, ["y"], weights))
    assert graph.outputs[0].shape == (3, 4)


# Blocks.


def test_a_loop_of_known_length_is_written_out(tmp_path):
    node = helper.make_node
    body = helper.make_graph(
        [
            node("Mul", ["state", "half"], ["state_out"], "scale"),
            node("Relu", ["state_out"], ["seen"], "relu"),
            node("Identity", ["go"], ["go_out"]),
        ],
        "body",
        ports(i=(TensorProto.INT64, []), go=(TensorProto.BOOL, []), state=(TensorProto.FLOAT, [4])),
        ports(go_out=(TensorProto.BOOL, []), state_out=(TensorProto.FLOAT, [4]), seen=(TensorProto.FLOAT, [4])),
    )
    weights = {"count": np.array(3), "true": np.array(True), "half": np.array(0.5, np.float32)}
    nodes = [node("Loop", ["count", "true", "x"], ["y", "all"], "loop", body=body)]
    graph = same(saved(tmp_path, nodes, {"x": [4]}, ["y", "all"], weights))
    assert graph.outputs[1].shape == (3, 4)
    assert "loop/2/relu" in {each.name for each in graph}


def test_a_loop_that_depends_on_data_is_refused(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_out"]), helper.make_node("Relu", ["s"], ["s_out"])],
        "body",
        ports(i=(TensorProto.INT64, []), go=(TensorProto.BOOL, []), s=(TensorProto.FLOAT, [4])),
        ports(go_out=(TensorProto.BOOL, []), s_out=(TensorProto.FLOAT, [4])),
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["peak"], keepdims=0),
        helper.make_node("Cast", ["peak"], ["rounds"], to=TensorProto.INT64),
        helper.make_node("Loop", ["rounds", "", "x"], ["y"], "loop", body=body),
    ]
    with pytest.raises(LoadError, match=r"model.onnx: loop \(Loop\): the number of rounds is computed"):
        af.load(saved(tmp_path, nodes, {"x": [4]}, ["y"]))


def test_random_numbers_are_no_constants(tmp_path):
    node = helper.make_node("RandomNormal", [], ["r"], "noise", shape=[4])
    nodes = [node, helper.make_node("Add", ["x", "r"], ["y"])]
    with pytest.raises(LoadError, match=r"noise \(RandomNormal\): it draws new random numbers in every run"):
        af.load(saved(tmp_path, nodes, {"x": [4]}, ["y"]))


def test_bytes_are_divided_as_bytes_are(tmp_path):
    """The quotient of whole numbers has no fraction: the host's, not fp16's."""
    nodes = [helper.make_node("Div", ["a", "b"], ["y"], "div")]
    inputs = ports(a=(TensorProto.UINT8, [4]), b=(TensorProto.UINT8, [4]))
    file = written(tmp_path, nodes, inputs, ["y"])
    feeds = {"a": np.array([7, 9, 250, 3], np.uint8), "b": np.array([2, 3, 4, 5], np.uint8)}
    graph = same(file, feeds=feeds)
    assert [each.name for each in graph if each.op == "host"] == ["y"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            helper.make_node("LayerNormalization", ["x", "x"], ["y"], "n", axis=1 << 31),
            "attribute 'axis' is 2147483648; the limit is 2,147,483,647",
        ),
        (
            helper.make_node("Split", ["x"], ["y"], "s", num_outputs=99),
            "num_outputs is 99, but the node has 1",
        ),
        (helper.make_node("DepthToSpace", ["x"], ["y"], "d"), r"d \(DepthToSpace\): argument 'blocksize' is missing"),
    ],
)
def test_attributes_that_make_no_sense(tmp_path, node, message):
    with pytest.raises(LoadError, match=rf"model.onnx: .*{message}"):
        af.load(saved(tmp_path, [node], {"x": [2, 4]}, ["y"]))


def test_a_scan_is_written_out(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "next"], ["sum_out"]),
            helper.make_node("Tanh", ["sum_out"], ["out"]),
        ],
        "body",
        ports(sum=(TensorProto.FLOAT, [4]), next=(TensorProto.FLOAT, [4])),
        ports(sum_out=(TensorProto.FLOAT, [4]), out=(TensorProto.FLOAT, [4])),
    )
    node = helper.make_node("Scan", ["start", "x"], ["end", "y"], "scan", body=body, num_scan_inputs=1)
    weights = {"start": np.zeros(4, np.float32)}
    same(saved(tmp_path, [node], {"x": [5, 4]}, ["end", "y"], weights))


def test_functions_of_the_file_are_inlined(tmp_path):
    body = [
        helper.make_node("LeakyRelu", ["a"], ["b"], "leak"),
        helper.make_node("Mul", ["b", "b"], ["c"], "square"),
    ]
    body[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    made = helper.make_function("custom", "Squared", ["a"], ["c"], body, [helper.make_opsetid("", 21)], ["slope"])
    nodes = [helper.make_node("Squared", ["x"], ["y"], "block", domain="custom", slope=0.25)]
    inputs = ports(x=(TensorProto.FLOAT, [4]))
    file = written(tmp_path, nodes, inputs, ["y"], functions=[made], domains=["custom"])
    graph, data = af.load(file), half(4, scale=1.0)
    want = np.square(np.where(data < 0, 0.25 * data, data))
    np.testing.assert_allclose(af.evaluate(graph, [data])[0], want, rtol=1e-6)
    assert "block/leak" in {each.name for each in graph}


# Quantised models.


def quantised_weight(shape, axis=0, kind=np.int8):
    info = np.iinfo(kind)
    codes = RNG.integers(info.min, info.max + 1, shape).astype(kind)
    scale = (RNG.uniform(0.5, 1.5, shape[axis]) / 256).astype(np.float16).astype(np.float32)
    return codes, scale


def test_weights_of_a_quantised_model_keep_their_encoding(tmp_path):
    """QDQ as exporters write it: int8 kernels with a scale for each output channel, uint8 activations."""
    node = helper.make_node
    codes, scale = quantised_weight((8, 4, 3, 3))
    weights = {"q": codes, "s": scale, "z": np.zeros(8, np.int8)}
    # No power of two: the standard rounds ties to even and the engine away from zero, and here there are none.
    weights |= {"as": np.array(0.03, np.float32), "az": np.array(128, np.uint8)}
    nodes = [
        node("QuantizeLinear", ["x", "as", "az"], ["xq"], "input/quantize"),
        node("DequantizeLinear", ["xq", "as", "az"], ["xd"], "input/dequantize"),
        node("DequantizeLinear", ["q", "s", "z"], ["w"], "conv/weight", axis=0),
        node("Conv", ["xd", "w"], ["y"], "conv"),
    ]
    graph = same(saved(tmp_path, nodes, {"x": [1, 4, 8, 8]}, ["y"], weights), tolerance=2e-3)
    (stored,) = [weight for weight in graph.weights.values() if weight.encoded is not None]
    assert (stored.encoding, stored.encoded.stored_bytes) == ("int8", 8 * 36 + 8 * 2)
    np.testing.assert_array_equal(stored.encoded.codes, codes)


def test_products_of_codes(tmp_path):
    node = helper.make_node
    kernel, scale = quantised_weight((6, 4, 3, 3))
    matrix, factor = quantised_weight((6, 10), axis=1)
    one = np.array(0.0625, np.float32)
    weights = {"xs": np.array(0.03125, np.float32), "xz": np.array(120, np.uint8)}
    weights |= {"w": kernel, "ws": scale, "wz": np.zeros(6, np.int8), "ys": one, "yz": np.array(100, np.uint8)}
    weights |= {"b": RNG.integers(-500, 500, 6).astype(np.int32)}
    weights |= {"m": matrix, "ms": factor, "mz": np.zeros(10, np.int8)}
    weights |= {"shape": np.array([1, 6]), "axes": np.array([2, 3])}
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"], "q"),
        node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("DequantizeLinear", ["c", "ys", "yz"], ["d"], "d"),
        node("ReduceMean", ["d", "axes"], ["p"], "pool", keepdims=0),
        node("QuantizeLinear", ["p", "ys", "yz"], ["pq"], "pq"),
        node("QLinearMatMul", ["pq", "ys", "yz", "m", "ms", "mz", "ys", "yz"], ["r"], "fc"),
        node("DequantizeLinear", ["r", "ys", "yz"], ["y"], "out"),
    ]
    graph = same(saved(tmp_path, nodes, {"x": [1, 4, 6, 6]}, ["y"], weights), tolerance=0.0625 * 1.01)
    assert sorted(each.encoding for each in graph.weights.values() if each.encoded) == ["int8", "int8"]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("with_zeros", [True, False])
def test_products_with_few_bits(tmp_path, bits, with_zeros):
    """MatMulNBits packs low bits first, in blocks along the rows of the product."""
    rows, columns, block = 6, 64, 32
    codes = RNG.integers(0, 1 << bits, (rows, columns)).astype(np.uint8)
    scale = half(rows, columns // block, mean=0.5)
    zeros = RNG.integers(0, 1 << bits, (rows, columns // block)).astype(np.uint8)

    def packed(values):
        each = 8 // bits
        filled = np.pad(values, [(0, 0), (0, -values.shape[1] % each)]).reshape(len(values), -1, each)
        return sum(filled[:, :, i].astype(np.uint8) << np.uint8(bits * i) for i in range(each)).astype(np.uint8)

    weights = {"w": packed(codes).reshape(rows, columns // block, -1), "s": scale.reshape(-1)}
    inputs = ["x", "w", "s", *(["z"] if with_zeros else [])]
    if with_zeros:
        weights["z"] = packed(zeros).reshape(-1)
    settings = {"K": columns, "N": rows, "bits": bits, "block_size": block, "domain": "com.microsoft"}
    node = helper.make_node("MatMulNBits", inputs, ["y"], "proj", **settings)
    file = written(
        tmp_path, [node], ports(x=(TensorProto.FLOAT, [2, 3, columns])), ["y"], weights, domains=["com.microsoft"]
    )
    graph = af.load(file)
    shift = zeros if with_zeros else np.full_like(zeros, 1 << (bits - 1))
    full = (codes - np.repeat(shift, block, 1).astype(float)) * np.repeat(scale, block, 1)
    data = half(2, 3, columns)
    stored_as = full.astype(np.float16).astype(float)
    np.testing.assert_allclose(af.evaluate(graph, [data])[0], data @ stored_as.T, rtol=1e-6, atol=1e-6)
    (stored,) = [weight for weight in graph.weights.values() if weight.encoded]
    assert stored.encoding == "blockwise"


# Weights stay in their file.


def test_weights_that_are_fp16_in_the_file_are_not_copied(tmp_path):
    weight = half(64, 64).astype(np.float16)
    stored = [numpy_helper.from_array(np.ascontiguousarray(weight.T), "w")]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], "fc", transB=1)],
        "net",
        ports(x=(TensorProto.FLOAT16, [2, 64])),
        [onnx.ValueInfoProto(name="y")],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, str(tmp_path / "model.onnx"))
    (found,) = af.load(tmp_path / "model.onnx").weights.values()
    np.testing.assert_array_equal(found.array, weight.T)
    owner = found.array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    assert isinstance(getattr(owner, "obj", owner), mmap.mmap)


@pytest.mark.parametrize("cut", [10, 200, 5000, 9000])
def test_a_file_that_is_cut_off(tmp_path, cut):
    weight = half(64, 64)
    file = saved(tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 64]}, ["y"], {"w": weight})
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(LoadError, match=r"model.onnx: "):
        af.load(file)


def test_external_data_that_ends_too_early(tmp_path):
    weight = half(64, 64)
    file = saved(tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 64]}, ["y"], {"w": weight})
    onnx.save(onnx.load(str(file)), str(file), save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 100)
    with pytest.raises(LoadError, match=r"weight 'w' needs bytes 0 to 16384 of 'weights.bin', which has 100 bytes"):
        af.load(file)


def test_the_standards_own_node_tests_are_passed_or_refused_and_never_wrong():
    """bench/onnx_coverage.py prints them by name; what is passed today stays passed."""
    place = Path(__file__).resolve().parent.parent / "bench" / "onnx_coverage.py"
    spec = importlib.util.spec_from_file_location("onnx_coverage", place)
    assert spec is not None
    coverage = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = coverage
    spec.loader.exec_module(coverage)
    everything = coverage.outcomes(suites=coverage.SUITES)
    told = {name: each for name, each in everything.items() if each.suite == "node"}
    page = (place.parent.parent / "docs" / "reference" / "onnx.md").read_text(encoding="utf-8").partition("\n\n")[2]
    if f"package {onnx.__version__} " in page:  # another version has other tests
        assert coverage.coverage_page(everything) == page, "make docs-models"
    assert {name: each.reason for name, each in everything.items() if each.label == "wrong"} == {}
    assert {name: each.reason for name, each in told.items() if each.label == "wrong"} == {}
    counts = Counter(each.label for each in told.values())
    assert counts["passed"] >= 1350
    assert counts["passed"] + counts["host"] >= 1640
    assert all(each.reason for each in told.values() if each.label in ("unsupported", "host"))


def message_of(file, **loading):
    """What is said of a file that cannot be read; nothing if it can."""
    try:
        af.load(file, **loading)
    except LoadError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(8))
def test_damaged_files_are_read_or_refused_in_one_line(tmp_path, seed):
    """Bytes of a real file changed at random: a graph or one message that names the file, nothing else."""
    whole = (ROOT / "examples" / "tiny_encoder.onnx").read_bytes()
    rng = np.random.default_rng(seed)
    for _ in range(12):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), int(rng.choice([1, 2, 8]))):
            damaged[place] = int(rng.integers(0, 256))
        (tmp_path / "damaged.onnx").write_bytes(damaged)
        said = message_of(tmp_path / "damaged.onnx", dims={"batch": 1})
        assert said == "" or said.startswith("damaged.onnx: ")
        assert "\n" not in said


# Whole models: meaning against the reference evaluator, engine numbers within a bound of fp16.


def recurrent(tmp_path):
    """A bidirectional LSTM, its states at the end, and a linear head."""
    node = helper.make_node
    weights = {"w": half(2, 64, 12), "r": half(2, 64, 16), "b": half(2, 128), "fc": half(32, 5)}
    weights |= {"shape": np.array([6, 1, 32])}
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["y0", "h", "c"], "lstm", hidden_size=16, direction="bidirectional"),
        node("Transpose", ["y0"], ["y1"], "turn", perm=[0, 2, 1, 3]),
        node("Reshape", ["y1", "shape"], ["y2"], "join"),
        node("MatMul", ["y2", "fc"], ["y"], "head"),
    ]
    return saved(tmp_path, nodes, {"x": [6, 1, 12]}, ["y"], weights)


def detector(tmp_path):
    """Two scales of boxes and scores: convolutions, an upsampling, anchors decoded by known tables."""
    node = helper.make_node
    anchors = np.stack(np.meshgrid(np.arange(8), np.arange(8)), 0).reshape(1, 2, 64).astype(np.float32)
    weights = {
        "w1": half(16, 8, 3, 3),
        "w2": half(16, 16, 3, 3),
        "lateral": half(16, 16, 1, 1),
        "out": half(9, 16, 1, 1),
    }
    weights |= {"scales": np.array([1, 1, 2, 2], np.float32), "lines": np.array([1, 9, 64]), "anchors": anchors}
    weights |= {"cut": np.array([2, 2, 5]), "half": np.array(0.5, np.float32), "step": np.array(8.0, np.float32)}
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], "backbone/conv1", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("LeakyRelu", ["c1"], ["a1"], "backbone/act1", alpha=0.125),
        node("Conv", ["a1", "w2"], ["c2"], "backbone/conv2", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", ["c2", "", "scales"], ["up"], "neck/up", mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Conv", ["a1", "lateral"], ["l"], "neck/lateral"),
        node("Add", ["up", "l"], ["p"], "neck/add"),
        node("Conv", ["p", "out"], ["o"], "head/conv"),
        node("Reshape", ["o", "lines"], ["flat"], "head/flat"),
        node("Split", ["flat", "cut"], ["xy", "wh", "cls"], "head/split", axis=1),
        node("Sigmoid", ["xy"], ["sxy"], "head/xy"),
        node("Sub", ["sxy", "half"], ["centred"], "head/centre"),
        node("Add", ["centred", "anchors"], ["placed"], "head/anchors"),
        node("Mul", ["placed", "step"], ["boxes"], "head/scale"),
        node("Exp", ["wh"], ["sizes"], "head/sizes"),
        node("Sigmoid", ["cls"], ["scores"], "head/scores"),
        node("Concat", ["boxes", "sizes", "scores"], ["y"], "head/concat", axis=1),
    ]  # fmt: skip
    return saved(tmp_path, nodes, {"x": [1, 8, 16, 16]}, ["y"], weights)


def twin(name, **sizes):
    def write(tmp_path):
        sys.path.insert(0, str(ROOT / "bench"))
        try:
            import networks
            from twins import onnx_twin
        finally:
            sys.path.pop(0)
        graph = af.Graph([getattr(networks, name)(**sizes)])
        (tmp_path / "model.onnx").write_bytes(onnx_twin(graph))
        return tmp_path / "model.onnx"

    return write


WHOLE = {
    "cnn": cnn,
    "lstm": recurrent,
    "detector": detector,
    "encoder": twin("bert_encoder", layers=2, width=64, heads=4, sequence=16),
    "decoder": twin("decoder", layers=2, width=64, heads=4, sequence=16),
    "unet": twin("unet", size=32, widths=(8, 16, 32, 64)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_models(name, tmp_path):
    file = WHOLE[name](tmp_path)
    graph = af.load(file)
    assert not [each for each in graph if each.op == "host"]
    names = graph.names()
    feeds = {names[each.uid]: half(*each.shape, scale=0.5) for each in graph.inputs}
    want = ReferenceEvaluator(str(file)).run(None, feeds)[0]
    peak = np.abs(want).max()
    np.testing.assert_allclose(af.evaluate(graph, feeds)[0], want, rtol=1e-3, atol=1e-3 * peak)  # weights are fp16
    for chip in ("m1", "m5"):
        found = af.compile(graph, target=chip, mode="fast").run(feeds).outputs
        np.testing.assert_allclose(next(iter(found.values())), want, rtol=2e-2, atol=2e-2 * peak)


def test_a_known_logarithm_of_zero_is_minus_infinity_without_a_word(tmp_path):
    """Relative positions of T5 start at zero; pytest makes an error of every warning."""
    node = helper.make_node
    nodes = [node("Log", ["zeros"], ["low"]), node("Max", ["low", "floor"], ["known"])]
    nodes.append(node("Add", ["x", "known"], ["y"]))
    weights = {"zeros": np.zeros(4, np.float32), "floor": np.full(4, -2.0, np.float32)}
    graph = af.load(saved(tmp_path, nodes, {"x": [4]}, ["y"], weights))
    found = af.evaluate(graph, [np.ones(4)])
    np.testing.assert_array_equal(np.ravel(found), -np.ones(4))
