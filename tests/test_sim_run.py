"""The executor: programs run as the engine runs them, on every chip, with the evidence beside each number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import test_graph_ops
from random_graphs import random_graph
from test_lower import LOWERED, built

import aneforge as af
from aneforge.anec.interpret import interpreted_names
from aneforge.compiler.compile import compile_target
from aneforge.errors import AneforgeError
from aneforge.graph import Graph
from aneforge.sim.engine import Engine
from aneforge.sim.executor import execute
from aneforge.sim.fidelity import basis
from aneforge.targets import target

CHIPS = ["h13", "h14", "h16g", "h17s"]


def run(out, arrays, chip="h13", trace=False):
    graph = Graph.of(out)
    program = compile_target(graph, target(chip))
    names = [graph.names()[each.uid] for each in graph.inputs]
    ports = {port.name: port for port in program.inputs}
    feeds = {name: ports[name].to_ndchw(np.asarray(array)) for name, array in zip(names, arrays, strict=True)}
    done = execute(program, feeds, trace)
    return [port.from_ndchw(done.outputs[port.name]) for port in program.outputs], done


def halves(arrays):
    return [np.asarray(array, np.float64).astype(np.float16).astype(np.float64) for array in arrays]


# Ops whose result in fp16 is far from float64 by nature, and why.
LOOSE = {
    "topk": "picks change with rounding",
    "sort": "indices change with rounding",
    "fps": "picks change with rounding",
    "radius_search": "a comparison with a radius",
    "argmax": "picks change with rounding",
}


@pytest.mark.parametrize("case", LOWERED, ids=[f"{number}-{case.op}" for number, case in enumerate(LOWERED)])
def test_every_op_comes_near_its_meaning(case):
    """No op is far from float64: a coarse net under the exact tests, so a wrong rule cannot hide."""
    graph, arrays = built(case)
    arrays = halves(arrays)
    try:
        found, done = run(graph, arrays, "h17s")
    except AneforgeError as error:
        pytest.skip(f"no program: {error}")
    want = af.evaluate(graph, dict(zip(graph.inputs, arrays, strict=True)))
    assert sum(done.fidelity.values()) > 0 or not done.fidelity
    if case.op in LOOSE:
        return
    for one, two in zip(found, want, strict=True):
        wide = np.asarray(two, np.float64)
        finite = np.isfinite(wide) & (np.abs(wide) < 30000)
        scale = max(1.0, float(np.abs(wide[finite]).max(initial=0.0)))
        np.testing.assert_allclose(np.asarray(one, np.float64)[finite], wide[finite], rtol=0.02, atol=0.02 * scale)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", [1, 5, 9])
def test_random_programs_run_and_stay_near_the_reference(seed, chip):
    out, x = random_graph(seed, steps=10)
    data = halves([np.random.default_rng(seed).normal(size=x.shape)])
    found, done = run(out, data, chip, trace=True)
    want = af.evaluate(Graph.of(out), data)
    for one, two in zip(found, want, strict=True):
        np.testing.assert_allclose(one.astype(np.float64), two, rtol=0.05, atol=0.05)
    assert all(entry.sources for entry in done.trace)
    assert {entry.fidelity for entry in done.trace} <= {"exact", "modelled", "assumed"}


def test_the_same_bits_every_time_and_in_every_place_of_a_batch():
    """N48: reruns and batch positions give identical bits."""
    x = af.input((3, 4, 6, 6), name="x")
    out = af.conv(x, np.random.default_rng(0).normal(size=(5, 4, 3, 3)), pad=1).gelu()
    one = np.random.default_rng(1).normal(size=(1, 4, 6, 6))
    first, _ = run(out, [np.repeat(one, 3, axis=0)])
    second, _ = run(out, [np.repeat(one, 3, axis=0)])
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[0][0], first[0][2])


def test_chips_differ_where_silicon_says_so():
    """A 3 x 3 convolution: M1 and M4 give the same bits, M5 others (Winograd)."""
    x = af.input((1, 16, 12, 12), name="x")
    rng = np.random.default_rng(3)
    out = af.conv(x, rng.normal(0, 0.1, (16, 16, 3, 3)), pad=1)
    data = [rng.normal(size=x.shape)]
    m1, m4, m5 = (run(out, data, chip)[0][0] for chip in ("h13", "h16g", "h17s"))
    np.testing.assert_array_equal(m1, m4)
    assert (m1 != m5).any()
    assert Engine.of(target("h17s")).winograd
    assert not Engine.of(target("h16g")).winograd


@pytest.mark.parametrize(("chip", "last", "first"), [("h13", 4094.0, 4096.0), ("h14", 4094.0, 4096.0)])
def test_a_width_slice_saturates_on_the_older_chips(chip, last, first):
    """N18: finite up to 4094, infinite above, on M1 and M2; clean on M4 and M5."""
    x = af.input((1, 1, 1, 8), name="x")
    out = x.slice_by_size([0, 0, 0, 1], [1, 1, 1, 7])
    for value, finite in ((last, True), (first, False)):
        data = np.zeros((1, 1, 1, 8))
        data[..., 4] = value
        assert np.isfinite(run(out, [data], chip)[0][0]).all() == finite
        assert np.isfinite(run(out, [data], "h17s")[0][0]).all()
    height = x.reshape(1, 1, 8, 1).slice_by_size([0, 0, 1, 0], [1, 1, 7, 1])
    data[..., 4] = first
    assert np.isfinite(run(height, [data], chip)[0][0]).all()  # N20: the width only


def test_elementwise_probes():
    """numerics_train.json, measured on the M6."""
    a, b = af.input((1, 4), name="a"), af.input((1, 4), name="b")
    sums, _ = run(a + b, [np.array([[2048, 65504, 16384, 2.0**-24]]), np.array([[1, 0, 16384, 0]])], "h16g")
    assert sums[0].tolist() == [[2050.0, 65504.0, 32768.0, 2.0**-24]]
    product, _ = run(a * b, [np.full((1, 4), 256.0), np.full((1, 4), 256.0)], "h16g")
    assert np.isinf(product[0]).all()


def test_no_nan_ever_comes_out():
    """N31, N32."""
    x = af.input((1, 4), name="x")
    data = np.array([[np.nan, np.inf, -np.inf, 0.0]])
    for out in (x.relu(), x - x, x * 0, x.sqrt(), x.sigmoid(), x.softmax(), x + 0):
        found, _ = run(out, [data])
        assert not np.isnan(found[0]).any()
    assert run(x.relu(), [data])[0][0][0, 0] == np.inf


def test_the_first_non_finite_layer_is_told():
    x = af.input((1, 4), name="x")
    out = (x * 300).named("large") * (x * 300)
    _, done = run(out.relu(), [np.full((1, 4), 100.0)])
    assert done.first_non_finite is not None
    assert "mul" in done.first_non_finite.sources[0]


def test_what_is_exact_is_labelled_so():
    m6, m5, m3 = target("h18g"), target("h17s"), target("h15")
    assert basis("convolution", m5) == basis("transpose", m3) == "exact"
    assert basis("convolution", m3) == "modelled"  # nobody has measured an M3
    assert basis("tanh", m6) == "exact"
    assert basis("tanh", m5) == "modelled"
    assert basis("reduce_sum", m5) == "assumed"
    assert {basis(name.removeprefix("anec."), m5) for name in interpreted_names()} == {
        "exact",
        "modelled",
        "assumed",
    }


def test_every_op_case_was_looked_at():
    assert len(LOWERED) > 150
    assert {case.op for case in test_graph_ops.CASES} >= set(LOOSE)


# The commands.


def test_run_writes_what_the_model_gives(tmp_path, capsys):
    from aneforge.cli import run as command

    net = tmp_path / "net.py"
    net.write_text("import numpy as np\nimport aneforge as af\nout = af.input((1, 4), name='x').gelu().named('y')\n")
    given, kept = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(given, x=np.linspace(-1, 1, 4)[None])
    command.run(str(net), "m5", str(given), str(kept), True, False)
    with np.load(kept) as held:
        assert held["y"].dtype == np.float16
    assert "gelu  primary  modelled" in capsys.readouterr().out
    for file in (str(net), str(tmp_path / "none.npz")):
        with pytest.raises(AneforgeError, match="npz"):
            command.run(str(net), "m5", file, None, False, False)
    with pytest.raises(AneforgeError, match="cannot be written"):
        command.run(str(net), "m5", str(given), str(tmp_path / "no" / "y.npz"), False, False)
    np.savez(given, wrong=np.zeros((1, 4)))
    with pytest.raises(AneforgeError, match="'wrong'"):
        command.run(str(net), "m5", str(given), None, False, False)


def test_probes_hold_where_the_arithmetic_is_known():
    from aneforge.sim.probes import readings

    chips = ("h13", "h14", "h16g", "h17", "h18g")
    assert all(each.holds is not False for chip in chips for each in readings(target(chip)))


def test_a_native_library_that_was_built_is_in_use(monkeypatch):
    """A library that does not load would be passed over in silence, with every test of it."""
    from aneforge.sim.native import library

    monkeypatch.delenv("ANEFORGE_NATIVE", raising=False)
    built = (Path(library.__file__).parent / library.library_name()).exists()
    assert not built or not library.why_not()
