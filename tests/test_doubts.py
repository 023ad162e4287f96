"""What makes numbers doubtful: norms that collapse in a run, and tables that nobody has read."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.graph.graph import Graph
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


@pytest.mark.parametrize(("chip", "source"), [("m1", "U41"), ("m4", "C80"), ("m5", None), ("m6", None)])
def test_a_tanh_that_nobody_has_read_is_told(chip, source):
    """C80: on an M4 nothing is read for tanh."""
    x, out = network(lambda value: value.tanh())
    told = doubts(out, {"x": RNG.normal(size=x.shape)}, chip)
    where = f"({source} on {chip.upper()})"
    assert told == ((f"8 tanh nodes: the table is unknown, nobody has read it there {where}",) if source else ())


@pytest.mark.parametrize("name", ["relu", "sigmoid", "gelu", "silu"])
def test_functions_with_a_published_table_are_not_doubted(name):
    """C72: gelu and silu have one published table."""
    x, out = network(lambda value: getattr(value, name)())
    assert not doubts(out, {"x": RNG.normal(size=x.shape)})


# Check.


def test_check_names_fits_and_long_sums_of_squares():
    x = af.input((1, 64, 32, 32), name="x")
    out = [x.tanh().named("act"), x.sum_square((1, 2, 3)).named("energy"), x.l2_norm(1).named("unit")]
    report = af.check(out, "m1,m5")
    text = str(report)
    assert "doubtful: 1 tanh node: the table is unknown, nobody has read it there (U41 on M1)" in text
    for chip in ("m1", "m5"):
        (entry,) = report[chip].risk
        assert (entry.name, entry.rule, entry.basis) == ("energy", "overflow", "any finite input")
        assert "a sum of 65536 squares can exceed 65504" in entry.message
    assert "unit" not in text
    assert report.to_json()["doubts"] == report.doubts
    assert report.failed == ["m1", "m5"]  # an energy that is not bounded can overflow
    assert af.check(out, "m1,m5", fail_on="reject,oversize,unknown").ok
    assert not doubts_of_graph(Graph.of(x.relu()), {"m1": af.target("m1")})
