"""What ONNX Runtime's Core ML provider takes of a file: lists, constraints, parts, and the verdicts that follow."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from cli_kit import run
from onnx import TensorProto, helper, numpy_helper

import aneforge as af
from aneforge.errors import ArgumentError
from aneforge.formats.onnx.provider import partitions
from aneforge.formats.onnx.provider_rules import PROVIDERS, operators
from aneforge.study.study import Study

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
NETWORK, PROGRAM = PROVIDERS


def model(nodes, inputs, outputs=("y",), opset=17, kind=FLOAT, **stored):
    """A file with inputs of these shapes by name, and constants."""
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    graph = helper.make_graph(nodes, "net", ports, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def loaded(file, tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(file, path)
    return af.load(path)


def left(graph):
    """Why each form leaves nodes, by the name of the node's op."""
    reasons = {runtime: {} for runtime in PROVIDERS}
    for origin in graph.file.nodes:
        for runtime in PROVIDERS:
            if reason := graph.file.providers.declined((origin,), runtime):
                reasons[runtime][origin.kind] = reason
    return reasons


def weight(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def conv_relu(kind=FLOAT):
    dtype = np.float16 if kind == HALF else np.float32
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    return model(nodes, {"x": [1, 8, 16, 16]}, kind=kind, w=weight(8, 8, 3, 3, dtype=dtype))


def test_float32_runs_through_the_default_form_and_float16_through_the_other(tmp_path):
    """OG03, OG15: NeuralNetwork takes no float16, and MLProgram keeps float32, which the engine has not."""
    whole, half = loaded(conv_relu(), tmp_path), loaded(conv_relu(HALF), tmp_path)
    verdicts = {
        (kind, runtime): str(Study(graph, "m5", runtime=runtime).judged()["m5"].verdict)
        for kind, graph in (("fp32", whole), ("fp16", half))
        for runtime in PROVIDERS
    }
    assert verdicts == {
        ("fp32", NETWORK): "yes",
        ("fp32", PROGRAM): "no",
        ("fp16", NETWORK): "no",
        ("fp16", PROGRAM): "yes",
    }
    assert whole.file.providers.taken[PROGRAM] == (2, 2, 1)  # they are taken all the same
    assert half.file.providers.taken[NETWORK] == (2, 0, 0)


def softmax_between(kind=FLOAT):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    return model(nodes, {"x": [1, 8, 16], "k": [1, 16, 8]}, kind=kind)


def test_a_node_that_is_left_splits_the_model(tmp_path):
    """C98: a product of two activations needs MLProgram."""
    graph = loaded(softmax_between(), tmp_path)
    assert graph.file.providers.taken == {NETWORK: (3, 2, 2), PROGRAM: (3, 3, 1)}
    assert left(graph)[NETWORK] == {"MatMul": "NeuralNetwork takes a matrix by a constant matrix only"}
    split = Study(graph, "m5", runtime=NETWORK).judged()["m5"]
    assert [region.device for region in split.regions] == ["engine", "host", "engine"]
    half = loaded(softmax_between(HALF), tmp_path)
    assert Study(half, "m5", runtime=PROGRAM).judged()["m5"].verdict == "yes"


def test_a_part_that_only_moves_numbers_is_given_back(tmp_path):
    """OG08."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), helper.make_node("Selu", ["t"], ["y"])]
    graph = loaded(model(nodes, {"x": [1, 4, 8]}), tmp_path)
    assert graph.file.providers.taken[NETWORK] == (2, 0, 0)
    assert "OG08" in left(graph)[NETWORK]["Transpose"]
    assert "no form" in left(graph)[NETWORK]["Selu"]


def test_weights_behind_a_dequantiser_are_no_constants(tmp_path):
    """Dequantisers are not taken and not folded, so a convolution reads a computed weight."""
    codes = np.ones((8, 8, 1, 1), np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale"], ["w"]),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    graph = loaded(model(nodes, {"x": [1, 8, 4, 4]}, q=codes, scale=np.float32(0.1)), tmp_path)
    assert left(graph)[NETWORK]["Conv"] == "a computed kernel needs MLProgram"
    assert graph.file.providers.taken[PROGRAM].taken == 1


def test_constants_and_shapes_are_not_counted(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Concat", ["s"], ["s2"], axis=0),
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Reshape", ["i", "s2"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    assert loaded(model(nodes, {"x": [1, 4, 8]}), tmp_path).file.providers.taken[NETWORK] == (2, 2, 1)


def test_answers_survive_saving_and_a_changed_graph(tmp_path):
    graph = loaded(softmax_between(), tmp_path)
    graph.save(tmp_path / "net.aneforge")
    again = af.load(tmp_path / "net.aneforge")
    assert again.file.providers.taken == graph.file.providers.taken
    assert left(again) == left(graph)


def test_a_changed_graph_keeps_what_is_said_of_the_file_nodes(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "k"], ["s"], name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"], name="mixed"),
    ]
    graph = loaded(model(nodes, {"x": [1, 8, 16], "k": [1, 16, 8], "v": [1, 8, 16]}), tmp_path)
    study = Study(af.apply_form(graph, "softmax-spelled-out"), "m5", runtime=NETWORK)
    assert {study.names[uid] for uid in study.judged()["m5"].kept_off} >= {"scores", "y"}


def test_other_files_are_refused(tmp_path, monkeypatch, capsys):
    graph = af.input((1, 4, 8, 8), name="x").relu()
    with pytest.raises(ArgumentError, match="ort-coreml reads ONNX files, and the model is none"):
        af.check(graph, "m5", runtime=NETWORK)
    with pytest.raises(ArgumentError, match="'ort' is not a runtime; choose from: coreml"):
        af.check(graph, "m5", runtime="ort")


def test_the_command_shows_both_forms(tmp_path, monkeypatch, capsys):
    onnx.save(softmax_between(), tmp_path / "net.onnx")
    command = f"check {tmp_path}/net.onnx --target m5 --runtime ort-coreml"
    status, text, _ = run(command, monkeypatch, capsys)
    assert status == 1
    assert "hands Core ML 2 of 3 nodes in 2 parts" in text
    assert "hands Core ML 3 of 3 nodes in 1 part" in " ".join(text.split())
    record = json.loads(run(f"{command} --json", monkeypatch, capsys)[1])
    assert record["handed_on"][NETWORK] == {"nodes": 3, "taken": 2, "partitions": 2}
    assert record["runtime"] == NETWORK


@pytest.mark.parametrize("runtime", PROVIDERS)
@pytest.mark.parametrize("command", ["partition", "plan", "estimate", "report", "sweep", "tune"])
def test_every_command_that_judges_takes_the_runtime(command, runtime, tmp_path, monkeypatch, capsys):
    onnx.save(softmax_between(HALF if runtime == PROGRAM else FLOAT), tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    needs = {"report": " --out page.html", "sweep": " --out results --workers 1", "tune": " --budget 1"}
    more = needs.get(command, "")
    status, text, _ = run(f"{command} net.onnx --target m5 --runtime {runtime}{more}", monkeypatch, capsys)
    assert status == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8") if command == "report" else text
    assert command not in ("report", "partition", "plan") or "ONNX Runtime" in page


def test_other_runtimes_hear_nothing_of_it(tmp_path):
    graph = loaded(softmax_between(), tmp_path)
    assert af.check(graph, "m4").ok
    assert not af.preflight(graph, "m4").placement


# The constraints, one node a file. Each is a row that the provider takes and one beside it that it leaves.


def node(kind, inputs, shapes, kind_of=FLOAT, stored=None, opset=17, outputs=("y",), **attrs):
    made = helper.make_node(kind, list(inputs), list(outputs), **attrs)
    return model([made], dict(zip(inputs, shapes, strict=False)), outputs, opset, kind_of, **(stored or {}))


IMAGE = [1, 4, 8, 8]
PAIRS = {
    "Conv of three axes too many": (
        NETWORK,
        node("Conv", ["x", "w"], [IMAGE], stored={"w": weight(4, 4, 3, 3)}),
        node("Conv", ["x", "w"], [[1, 4, 8, 8, 8]], stored={"w": weight(4, 4, 3, 3, 3)}),
        "only 1-D and 2-D",
    ),
    "extent of a Conv": (
        NETWORK,
        node("Conv", ["x", "w"], [[1, 1, 1, 16384]], stored={"w": weight(1, 1, 1, 1)}),
        node("Conv", ["x", "w"], [[1, 1, 1, 16385]], stored={"w": weight(1, 1, 1, 1)}),
        "16,384",
    ),
    "Gemm": (
        NETWORK,
        node("Gemm", ["x", "w"], [[2, 4]], stored={"w": weight(4, 3)}),
        node("Gemm", ["x", "w"], [[2, 4]], stored={"w": weight(4, 3)}, alpha=0.5),
        "alpha and beta",
    ),
    "Concat": (
        NETWORK,
        node("Concat", ["x", "z"], [IMAGE, IMAGE], axis=1),
        node("Concat", ["x", "z"], [IMAGE, IMAGE], axis=2),
        "channels of four axes",
    ),
    "MaxPool": (
        NETWORK,
        node("MaxPool", ["x"], [IMAGE], kernel_shape=[3, 3], ceil_mode=0),
        node("MaxPool", ["x"], [IMAGE], kernel_shape=[3, 3], ceil_mode=1),
        "ceil_mode 1 needs MLProgram",
    ),
    "Resize": (
        NETWORK,
        node("Resize", ["x", "", "s"], [IMAGE], stored={"s": np.array([1, 1, 2, 2], np.float32)}, mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Resize", ["x", "", "s"], [IMAGE], stored={"s": np.array([1, 1, 1.5, 1.5], np.float32)}, mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        "whole numbers",
    ),
    "Pad": (
        NETWORK,
        node("Pad", ["x", "p", "v"], [IMAGE], stored={"p": np.array([0, 0, 1, 1] * 2), "v": np.float32(0)}),
        node("Pad", ["x", "p", "v"], [IMAGE], stored={"p": np.array([0, 1, 0, 0] * 2), "v": np.float32(0)}),
        "last two axes",
    ),
    "opset of Pad": (
        NETWORK,
        node("Pad", ["x", "p", "v"], [IMAGE], stored={"p": np.array([0, 0, 1, 1] * 2), "v": np.float32(0)}, opset=11),
        node("Pad", ["x"], [IMAGE], pads=[0, 0, 1, 1] * 2, opset=10),
        "from opset 11 on",
    ),
    "MLProgram alone": (
        PROGRAM,
        node("Erf", ["x"], [IMAGE], HALF),
        node("Selu", ["x"], [IMAGE], HALF),
        "no form",
    ),
    "NeuralNetwork alone": (
        NETWORK,
        node("LRN", ["x"], [IMAGE], size=3),
        node("Erf", ["x"], [IMAGE]),
        "ModelFormat=MLProgram only",
    ),
    "a vector in a product": (
        PROGRAM,
        node("MatMul", ["x", "z"], [[2, 3, 4], [4, 5]], HALF),
        node("MatMul", ["x", "z"], [[2, 3, 4], [4]], HALF),
        "vector against more axes",
    ),
    "PRelu": (
        PROGRAM,
        node("PRelu", ["x", "s"], [IMAGE], HALF, {"s": weight(4, 1, 1, dtype=np.float16)}),
        node("PRelu", ["x", "s"], [IMAGE], HALF, {"s": weight(1, 1, 1, dtype=np.float16)}),
        "needs NeuralNetwork",
    ),
    "ArgMax": (
        PROGRAM,
        node("ArgMax", ["x"], [IMAGE], axis=1),
        node("ArgMax", ["x"], [IMAGE], axis=1, select_last_index=1),
        "select_last_index",
    ),
    "Split": (
        NETWORK,
        node("Split", ["x"], [IMAGE], opset=13, axis=1, outputs=("y", "z")),
        node("Split", ["x"], [[1, 5, 8, 8]], opset=13, axis=1, outputs=("y",), stored={}),
        "one part",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("runtime", "fine", "wrong", "words"), PAIRS.values(), ids=PAIRS)
def test_both_sides_of_a_constraint(runtime, fine, wrong, words, tmp_path):
    assert loaded(fine, tmp_path).file.providers.taken[runtime].taken == 1
    graph = loaded(wrong, tmp_path)
    assert graph.file.providers.taken[runtime].taken == 0
    (reason,) = left(graph)[runtime].values()
    assert words in reason


def test_every_operator_has_a_form_that_is_known():
    assert len(operators()) == 66
    assert {form for row in operators().values() for form in row["forms"]} == set(PROVIDERS.values())


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ((), [[1, 2, 3, 4, 5]]),
        ((3,), [[1, 2], [4, 5]]),  # 4 reads 3, and 5 reads 4: both come behind
        ((2, 3), [[1], [4, 5]]),
        ((1,), [[2, 3, 4, 5]]),
        ((1, 2, 3, 4, 5), []),
    ],
)
def test_parts_of_a_diamond(left_out, expected):
    nodes = [(1, [], "a"), (2, ["a"], "b"), (3, ["a"], "c"), (4, ["b", "c"], "d"), (5, ["d"], "e")]
    found = partitions([(number, reads, [gives]) for number, reads, gives in nodes], dict.fromkeys(left_out, "left"))
    assert [sorted(part) for part in found] == expected
