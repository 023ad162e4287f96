"""Models that are not on the engine whole: regions, crossings, costs, and numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.study.placement import fixed_costs, likely
from aneforge.study.regions import ENGINE, HOST, split

onnx = pytest.importorskip("onnx")
helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto
RNG = np.random.default_rng(3)


def half(*shape, scale=0.2):
    return (RNG.standard_normal(shape) * scale).astype(np.float16).astype(np.float32)


def encoder(tmp_path, ops_between=("Det",)) -> Path:
    """Token numbers in, an embedding, a layer, something that only the host can do, a layer."""
    node = helper.make_node
    weights = {"table": half(40, 32), "w1": half(32, 64), "w2": half(4, 8), "shape": np.array([4, 16, 4, 4])}
    nodes = [
        node("Gather", ["table", "ids"], ["e"], "embed"),
        node("MatMul", ["e", "w1"], ["h"], "layer0/matmul"),
        node("Relu", ["h"], ["r"], "layer0/relu"),
        node("Reshape", ["r", "shape"], ["q"], "to_squares"),
        node("Det", ["q"], ["d"], "det"),
        node("Softmax", ["d"], ["s"], "softmax", axis=-1),
        node("Add", ["s", "s"], ["y"], "double"),
    ]
    stored = [numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()]
    ports = [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 16])]
    graph = helper.make_graph(nodes, "net", ports, [onnx.ValueInfoProto(name="y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, str(tmp_path / "encoder.onnx"))
    return tmp_path / "encoder.onnx"


def test_regions_alternate_and_name_what_crosses(tmp_path):
    found = af.partition(af.load(encoder(tmp_path)), "m1")
    told = [(each.device, [node.name for node in each.nodes if node.name]) for each in found.regions]
    assert told[0] == (HOST, ["embed"])
    assert told[1][0] == ENGINE
    assert {"layer0/matmul", "layer0/relu", "to_squares"} <= set(told[1][1])
    assert told[2] == (HOST, ["det"])
    assert told[3][0] == ENGINE
    crossed = {each.name: (each.source.number, [r.number for r in each.readers]) for each in found.crossings}
    assert crossed == {"embed": (0, [1]), "to_squares": (1, [2]), "det": (2, [3])}
    assert next(each.bytes for each in found.crossings if each.name == "embed") == 16 * 32 * 2
    assert found.reasons.keys() == {each.uid for each in found.graph if each.op == "host"}


def test_the_fixed_costs_are_the_published_constants(tmp_path):
    """Two regions of the engine with an output each, three changes of the device."""
    costs, evidence = fixed_costs()
    found = af.partition(af.load(encoder(tmp_path)), "m1")
    assert found.fixed_us == 2 * costs["launch"] + 3 * costs["switch"] + 2 * costs["output"] == 7 * 125.0
    assert evidence.confidence == "measured"
    assert evidence.conflict_id == "C30"


@pytest.mark.parametrize("by", ["rules", "placement"])
@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_a_run_gives_the_numbers_of_the_model(tmp_path, by, chip):
    from onnx.reference import ReferenceEvaluator

    file = encoder(tmp_path)
    feeds = {"ids": RNG.integers(0, 40, (1, 16))}
    found = af.partition(af.load(file), chip, by).run(feeds)["y"]
    want = ReferenceEvaluator(str(file)).run(None, feeds)[0]
    np.testing.assert_allclose(found, want, rtol=2e-2, atol=2e-3)


def test_a_graph_that_fits_is_one_region_and_has_the_bits_of_its_program():
    x = af.input((1, 8, 8, 8), name="x")
    out = af.conv(x, half(8, 8, 3, 3), pad=1).relu().named("y")
    found = af.partition(out, "m1")
    data = half(1, 8, 8, 8, scale=1.0)
    assert found.whole
    assert found.crossings == []
    np.testing.assert_array_equal(found.run({"x": data})["y"], af.compile(out, target="m1")(data))


def test_an_op_that_one_chip_lacks_splits_the_graph_there_only():
    """A top-k has no program on an M1 and is native from the M2 on."""
    x = af.input((4, 64), name="x")
    out = (af.topk(x.relu(), 8) * 2.0).named("y")
    assert [each.device for each in af.partition(out, "m1").regions] == [ENGINE, HOST, ENGINE]
    assert {each.device for each in af.partition(out, "m5").regions} == {ENGINE}
    data = np.arange(256, dtype=np.float32).reshape(4, 64)
    np.testing.assert_array_equal(
        af.partition(out, "m1").run({"x": data})["y"], af.partition(out, "m5").run({"x": data})["y"]
    )


def test_truth_values_cross_as_numbers():
    x = af.input((2, 8), name="x")
    deep = x.greater(0.0)
    graph = af.Graph([af.where(deep, x, -x).named("y")])
    device = {each.uid: HOST if each.op == "greater" else ENGINE for each in graph.operations}
    regions = split(graph, device)
    names = graph.names()
    inner = regions[-1].graph(names)
    assert {each.dtype for each in inner.inputs} == {"fp16"}
    data = half(2, 8)
    fed = {"x": data, names[deep.uid]: (data > 0).astype(float)}
    np.testing.assert_allclose(af.evaluate(inner, fed)[0], np.abs(data))


def random_graph(rng):
    """Sums and products of earlier values; every op on a device of its own choice."""
    x = af.input((4,), name="x")
    values, device = [x], {}
    for _ in range(int(rng.integers(3, 25))):
        a, b = (values[int(rng.integers(len(values)))] for _ in range(2))
        made = a + b if rng.random() < 0.5 else a * b * 0.5 if b.op != "input" else a.relu()
        values.append(made)
    graph = af.Graph(values[-2:])
    device = {each.uid: ENGINE if rng.random() < 0.6 else HOST for each in graph.operations}
    return graph, device


@pytest.mark.parametrize("seed", range(60))
def test_regions_of_random_graphs_respect_every_edge(seed):
    """Each node in one region; whatever a region reads was made before; regions in turn give the graph's numbers."""
    graph, device = random_graph(np.random.default_rng(seed))
    regions = split(graph, device)
    home = {node.uid: region for region in regions for node in region.nodes}
    assert sorted(home) == sorted(device)
    assert all(device[node.uid] == region.device for region in regions for node in region.nodes)
    names, data = graph.names(), np.random.default_rng(seed).standard_normal(4)
    values = {each.uid: data for each in graph.inputs}
    for region in regions:
        assert all(each.uid in values for each in region.inputs)
        found = af.evaluate(region.graph(names), {names[each.uid]: values[each.uid] for each in region.inputs})
        values |= dict(zip((each.uid for each in region.outputs), found, strict=True))
    for each, want in zip(graph.outputs, af.evaluate(graph, [data]), strict=True):
        np.testing.assert_allclose(values[each.uid], want, rtol=1e-12)


def test_placement_weighs_the_fixed_costs():
    """One small op is not worth the engine's start; a deep stack of convolutions is."""
    x = af.input((1, 64, 32, 32), name="x")
    small = af.Graph([x.relu()])
    assert set(likely(small, {each.uid: True for each in small.operations}).values()) == {HOST}
    y = x
    for _ in range(8):
        y = af.conv(y, half(64, 64, 3, 3), pad=1)
    deep = af.Graph([y])
    assert set(likely(deep, {each.uid: True for each in deep.operations}).values()) == {ENGINE}
    assert set(likely(deep, {each.uid: False for each in deep.operations}).values()) == {HOST}


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_command_tells_and_runs(tmp_path):
    file = str(encoder(tmp_path))
    told = run("partition", file, "--target", "m1")
    assert told.returncode == 0, told.stderr
    assert "4 regions" in told.stdout
    assert "Det runs on the host" in told.stdout
    assert "fixed costs 875 us" in told.stdout
    assert set(json.loads(run("partition", file, "--target", "m1,m5", "--json").stdout)["targets"]) == {"m1", "m5"}
    done = run("run", file, "--target", "m1", "--out", str(tmp_path / "y.npz"))
    assert done.returncode == 0, done.stderr
    assert "2 regions on the engine, 2 on the host" in done.stderr
    assert np.load(tmp_path / "y.npz")["y"].shape == (4, 16)
    compiled = run("compile", file, "--target", "m1")
    assert compiled.returncode == 0, compiled.stderr
    assert "in part: 5 of 7 ops on the engine" in compiled.stdout


def test_a_region_can_be_exported(tmp_path):
    """The encoder's engine part as a package that takes what the host hands over."""
    pytest.importorskip("coremltools")
    file, out = encoder(tmp_path), tmp_path / "part.mlpackage"
    refused = run("export", str(file), "--out", str(out), "--target", "m1")
    assert refused.returncode == 2
    assert "--region N" in refused.stderr
    done = run("export", str(file), "--out", str(out), "--target", "m1", "--region", "1")
    assert done.returncode == 0, done.stderr
    split = af.partition(af.load(file), "m1")
    back, data = af.load(out), half(1, 16, 32)
    np.testing.assert_array_equal(af.compile(back, target="m1")(data), split.models[1](data))
    with pytest.raises(AneforgeError, match=r"region 9: there are 4 regions\. Choose 0 to 3"):
        split.graph_of(9)
    assert "aneforge partition" in run("lower", str(file), "--target", "m1").stderr


def test_what_cannot_be_asked(tmp_path):
    x = af.input((4,), name="x")
    with pytest.raises(AneforgeError, match="by: 'luck' is not a way to partition"):
        af.partition(x.relu(), "m1", by="luck")
    with pytest.raises(AneforgeError, match="x: this input has no value"):
        af.partition(x.relu(), "m1").run({})
    with pytest.raises(AneforgeError, match="z: not an input of the program"):
        af.partition(x.relu(), "m1").run({"z": np.zeros(4)})
