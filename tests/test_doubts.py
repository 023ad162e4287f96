"""What makes numbers doubtful: norms that collapse in a run, and fitted tables that decide the error of an output."""

from __future__ import annotations

import re

import numpy as np
import pytest

import aneforge as af
from aneforge.graph.graph import Graph
from aneforge.sim.tables import fitted
from aneforge.study.doubts import doubts_of_graph

pytestmark = pytest.mark.filterwarnings("ignore::aneforge.errors.PrecisionWarning")
RNG = np.random.default_rng(11)
GAIN, OFFSET = np.linspace(0.5, 1.5, 64), np.linspace(-1.0, 1.0, 64)


def doubts(out, feeds, chip="m1", mode="exact"):
    return af.run(Graph.of(out), chip, feeds, mode).only.doubts


# Norms.


@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_a_norm_whose_squares_are_infinite_is_told(chip):
    x = af.input((4, 64), name="x")
    out = x.layer_norm(GAIN, OFFSET).named("n")
    large = RNG.uniform(-900, 900, (4, 64))
    (told,) = doubts(out, {"x": large}, chip)
    assert told.startswith("norm n collapsed: a square passed 65504")
    (value,) = af.run(out, chip, {"x": large}).only.outputs.values()
    assert np.array_equal(value, np.broadcast_to(OFFSET.astype(np.float16), value.shape))
    assert not doubts(out, {"x": large / 100}, chip)
    assert not doubts(out, {"x": np.zeros((4, 64))}, chip)  # the offset alone is right here


def test_a_root_mean_square_that_is_infinite_or_zero_is_told():
    x = af.input((4, 64), name="x")
    out = x.rms_norm(GAIN, 1e-12).named("n")
    (told,) = doubts(out, {"x": RNG.uniform(300, 900, (4, 64))})
    assert "the squares passed 65504, and the result is zero" in told
    (told,) = doubts(out, {"x": np.full((4, 64), 1e-4)})
    assert "too small to add, and the result is infinite" in told
    assert not doubts(out, {"x": RNG.normal(size=(4, 64))})


def test_many_collapsed_norms_are_counted():
    x = af.input((4, 64), name="x")
    out = [(x * (1.0 + place)).layer_norm(GAIN, OFFSET).named(f"n{place}") for place in range(6)]
    told = doubts(out, {"x": RNG.uniform(-900, 900, (4, 64))})
    assert len(told) == 4
    assert told[-1] == "3 more norms collapsed"


def test_norms_of_a_split_model_are_watched(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    table = onnx.numpy_helper.from_array((RNG.uniform(-900, 900, (16, 64))).astype(np.float32), "table")
    stored = [onnx.numpy_helper.from_array(vector.astype(np.float32), name) for name, vector in
              (("gain", GAIN), ("offset", OFFSET))]  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["h"], "embed"),
        helper.make_node("LayerNormalization", ["h", "gain", "offset"], ["y"], "norm"),
    ]
    ports = [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, 5])]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")], [table, *stored])
    file = tmp_path / "split.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(file))
    result = af.run(file, "m1", {"ids": np.arange(5).reshape(1, 5)})
    assert result.only.partition is not None
    assert "collapsed" in result.only.doubts[0]
    assert "doubtful: norm" in str(result)
    assert result.to_json()["targets"]["m1"]["doubts"]


# Tables.


def network(activation, depth=8, width=32):
    x = value = af.input((4, width), name="x")
    rng = np.random.default_rng(1)
    for _ in range(depth):
        value = activation(value.linear(rng.normal(size=(width, width)) * 1.4 / np.sqrt(width)))
    return x, value.named("y")


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_table_that_decides_the_error_is_told_with_its_share(mode):
    x, out = network(lambda value: value.silu())
    feeds = {"x": RNG.normal(size=x.shape).astype(np.float16)}
    (told,) = doubts(out, feeds, mode=mode)
    share = float(re.findall(r"change it by ([\d.]+) %", told)[0]) / 100
    assert "8 tables of swish" in told
    assert "U41" in told
    (found,) = af.run(out, "m1", feeds).only.outputs.values()
    (exact,) = af.evaluate(Graph.of(out), {"x": feeds["x"].astype(np.float64)})
    error = np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert share == pytest.approx(error, rel=0.1)  # it is nearly all of the error


def test_functions_without_a_fit_are_not_doubted():
    x, out = network(lambda value: value.relu())
    assert not doubts(out, {"x": RNG.normal(size=x.shape)})
    x, out = network(lambda value: value.sigmoid())
    assert not doubts(out, {"x": RNG.normal(size=x.shape)})
    assert [name for name in ("gelu", "swish", "tanh", "sigmoid", "exp2", "relu") if fitted(name)] == ["gelu", "swish"]


# Check.


def test_check_names_fits_and_long_sums_of_squares():
    x = af.input((1, 64, 32, 32), name="x")
    out = [x.silu().named("act"), x.sum_square((1, 2, 3)).named("energy"), x.l2_norm(1).named("unit")]
    report = af.check(out, "m1,m5")
    text = str(report)
    assert "doubtful: 1 silu node: the table is a fit (U41 on M1; N59 on M5)" in text
    for chip in ("m1", "m5"):
        (entry,) = report[chip].risk
        assert (entry.name, entry.rule, entry.basis) == ("energy", "overflow", "any finite input")
        assert "a sum of 65536 squares can exceed 65504" in entry.message
    assert "unit" not in text
    assert report.to_json()["doubts"] == report.doubts
    assert report.ok
    assert not doubts_of_graph(Graph.of(x.relu()), {"m1": af.target("m1")})
