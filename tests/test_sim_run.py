"""The executor: programs run as the engine runs them, on every chip, with the evidence beside each number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import test_graph_ops
from random_graphs import random_graph
from test_lower import LOWERED, built

import aneforge as af
from aneforge.chips import target
from aneforge.compiler.compile import compile_target
from aneforge.compiler.refusal import CompileError
from aneforge.engine.interpret import interpreted_names
from aneforge.errors import AneforgeError
from aneforge.graph import Graph
from aneforge.sim.engine import Engine
from aneforge.sim.executor import execute
from aneforge.sim.fidelity import basis

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
    "round": "ties go away from zero on the engine, and to even in NumPy",
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
    assert basis("reduce_sum", m5) == "modelled"
    assert basis("average_pool", m5) == "assumed"
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
    command.run(str(net), "m5", command.RunOptions(str(given), str(kept), trace=True))
    with np.load(kept) as held:
        assert held["y"].dtype == np.float16
    assert "gelu  primary  exact" in capsys.readouterr().out
    for file in (str(net), str(tmp_path / "none.npz")):
        with pytest.raises(AneforgeError, match="npz"):
            command.run(str(net), "m5", command.RunOptions(file))
    with pytest.raises(AneforgeError, match="does not exist"):
        command.run(str(net), "m5", command.RunOptions(str(given), str(tmp_path / "no" / "y.npz")))
    np.savez(given, wrong=np.zeros((1, 4)))
    with pytest.raises(AneforgeError, match="'wrong'"):
        command.run(str(net), "m5", command.RunOptions(str(given)))


def test_probes_hold_where_the_arithmetic_is_known():
    from aneforge.study.probes import readings

    chips = ("h13", "h14", "h16g", "h17", "h18g")
    assert all(each.holds is not False for chip in chips for each in readings(target(chip)))


def test_a_native_library_that_was_built_is_in_use(monkeypatch):
    """A library that does not load would be passed over in silence, with every test of it."""
    from aneforge.sim.native import library

    monkeypatch.delenv("ANEFORGE_NATIVE", raising=False)
    library.settings.cache_clear()
    built = (Path(library.__file__).parent / library.library_name()).exists()
    told = library.why_not()
    library.settings.cache_clear()
    assert not built or not told


# Modes, batches, comparisons.


def small_net(seed=0):
    rng = np.random.default_rng(seed)
    x = af.input((1, 8, 12, 12), name="x")
    y = af.conv(x, rng.normal(0, 0.2, (16, 8, 3, 3)), bias=rng.normal(size=16), pad=1).relu().max_pool(2)
    return af.conv(y, rng.normal(0, 0.2, (8, 16, 1, 1))).gelu().named("y"), rng.normal(size=(5, 1, 8, 12, 12))


@pytest.mark.parametrize("chip", CHIPS)
def test_the_fast_mode_stays_near_the_exact_one(chip):
    """Both round every result to fp16; they differ in the roundings inside a sum."""
    out, data = small_net()
    exact, fast = (af.compile(out, target=chip, mode=mode)(data[0]) for mode in ("exact", "fast"))
    assert np.linalg.norm(exact - fast) < 2e-3 * np.linalg.norm(exact)
    with pytest.raises(AneforgeError, match="exact, fast"):
        af.compile(out, target=chip, mode="quick")


def test_sums_of_the_fast_mode_are_single_precision_with_one_rounding():
    rng = np.random.default_rng(4)
    x, weight, bias = (rng.normal(size=shape).astype(np.float16) for shape in ((9, 40), (24, 40), (24,)))
    node = af.input((9, 40), name="x").linear(weight, bias)
    found = af.compile(node, target="m5", mode="fast")(x)
    want = x.astype(np.float32) @ weight.astype(np.float32).T + bias.astype(np.float32)
    np.testing.assert_allclose(found, want, rtol=2**-10, atol=1e-6)
    assert (found == found.astype(np.float16)).all()
    large = af.input((1, 2), name="x").linear(np.ones((1, 2)))
    assert af.compile(large, target="m5", mode="fast")(np.full((1, 2), 16384.0)) == np.inf


def test_fast_sums_are_labelled_modelled():
    out, data = small_net()
    exact, fast = (af.compile(out, target="m5", mode=mode).run({"x": data[0]}).fidelity for mode in ("exact", "fast"))
    assert exact == {"exact": 5}
    assert fast == {"exact": 3, "modelled": 2}


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_batch_has_the_bits_of_single_runs(workers, monkeypatch):
    from aneforge.sim import native

    monkeypatch.setenv("ANEFORGE_THREADS", workers)
    native.settings.cache_clear()
    out, data = small_net()
    model = af.compile(out, target="m5")
    runs = list(model.batch({"x": data}))
    native.settings.cache_clear()
    assert len(runs) == len(data)
    for done, each in zip(runs, data, strict=True):
        np.testing.assert_array_equal(done.outputs["y"], model.run({"x": each}).outputs["y"])


def test_a_batch_says_what_is_wrong_with_it():
    a, b = af.input((1, 4), name="a"), af.input((1, 4), name="b")
    model = af.compile(a + b, target="m1")
    with pytest.raises(AneforgeError, match="a 3, b 2"):
        model.batch({"a": np.zeros((3, 1, 4)), "b": np.zeros((2, 1, 4))})
    with pytest.raises(AneforgeError, match="c: not an input"):
        model.batch({"c": np.zeros((3, 1, 4))})
    with pytest.raises(AneforgeError, match=r"a: shape \[1, 5\] does not fit; expected \[1, 4\]"):
        list(model.batch({"a": np.zeros((2, 1, 5)), "b": np.zeros((2, 1, 4))}))


def test_the_same_bits_with_and_without_the_native_library(monkeypatch):
    from aneforge.sim import native

    out, data = small_net()
    found = {chip: af.compile(out, target=chip)(data[0]) for chip in CHIPS}
    monkeypatch.setenv("ANEFORGE_NATIVE", "0")
    native.settings.cache_clear()
    for chip, value in found.items():
        np.testing.assert_array_equal(af.compile(out, target=chip)(data[0]), value)
    native.settings.cache_clear()


@pytest.mark.parametrize(("channels", "count", "passes"), [(1024, 2, 11), (256, 1, 2)])
def test_pieces_and_passes_of_a_layer_change_no_number(channels, count, passes):
    """18 MB are split by output channels and 1.1 MB run in passes: the trace has every piece, no number changes."""
    rng = np.random.default_rng(6)
    weight = rng.normal(0, 0.05, (channels, channels, 3, 3))
    x = af.input((1, channels, 4, 4), name="x")
    data = rng.normal(size=x.shape)
    model = af.compile(af.conv(x, weight, stride=2, pad=1).named("y"), target="m1")
    assert {layer.passes for layer in model.program.layers if layer.op == "convolution"} == {passes}
    done = model.run({"x": data}, trace=True)
    pieces = [entry for entry in done.trace if entry.op == "convolution"]
    assert len(pieces) == count
    assert sum(entry.value.shape[2] for entry in pieces) == channels
    for first in (0, 8 * (channels // 16), channels - 16):
        alone = af.compile(af.conv(x, weight[first : first + 16], stride=2, pad=1), target="m1")
        assert [layer.passes for layer in alone.program.layers] == [1]
        part = done.outputs["y"][:, first : first + 16]
        np.testing.assert_array_equal(part.astype(np.float32), alone(data))


def test_a_model_reads_its_weights_once(monkeypatch):
    from aneforge.graph.weights import Weight

    out, data = small_net()
    model = af.compile(out, target="m1")
    first = model(data[0])
    monkeypatch.setattr(Weight, "array", property(lambda self: pytest.fail("a weight was read again")))
    np.testing.assert_array_equal(model(data[0]), first)


def test_fidelity_of_ops_and_graphs():
    x = af.input((1, 8, 6, 6), name="x")
    assert af.fidelity("convolution", "m5") == af.fidelity("conv", "m5") == "exact"
    assert af.fidelity("anec.tanh", "m6") == "exact"
    assert [af.fidelity("gelu", chip) for chip in ("m1", "m3", "m4")] == ["exact", "modelled", "exact"]  # C72
    assert af.fidelity("tanh", "m4") == af.fidelity("silu", "m5") == "modelled"  # C80; no figure of silu but M6's
    assert af.fidelity(x.relu(), "m1") == "exact"
    assert af.fidelity([x.relu(), x.softmax(1)], "m1") == "modelled"
    with pytest.raises(AneforgeError, match=r"convolute: not a backend op .*convolution"):
        af.fidelity("convolute", "m1")


def test_missing_weights_are_named():
    out, data = small_net()
    model = af.compile(out, target="m1")
    model.program.module.weights.clear()
    with pytest.raises(
        AneforgeError, match=r"const_0: weight .* is missing from the program. Compile the graph again"
    ):
        model(data[0])


def test_softplus_and_logsumexp_break_where_chips_do():
    """N43 and the published cliffs: near 10.4, and near 7.63 for 32 channels."""
    x = af.input((1, 1, 1, 5), name="x")
    data = np.array([1.0, 10.39, 10.42, 20.0, np.inf]).reshape(1, 1, 1, 5)
    found = af.compile(x.softplus(), target="m1")(data).reshape(-1)
    np.testing.assert_allclose(found[:2], np.log1p(np.exp(data.reshape(-1)[:2])), rtol=2e-3)
    assert found[2:].tolist() == [0.0, 0.0, 0.0]
    node = af.input((1, 32, 1, 3), name="x").reduce_log_sum_exp(1)
    values = np.broadcast_to(np.array([7.6, 7.64, 9.0]), (1, 32, 1, 3))
    found = af.compile(node, target="m1")(values).reshape(-1)
    np.testing.assert_allclose(found[0], 7.6 + np.log(32), rtol=2e-3)
    assert found[1:].tolist() == [0.0, 0.0]


def test_one_channel_passes_no_accumulator_on_the_m1():
    """C20: 60000 passes a 1 x 1 convolution of one channel on the M1; 32768 overflows on M4 and M6."""
    out = af.conv(af.input((1, 1, 2, 2), name="x"), np.ones((4, 1, 1, 1)))
    assert (af.compile(out, target="m1")(np.full((1, 1, 2, 2), 60000.0)) == 60000.0).all()
    for chip in ("m4", "m6"):
        assert np.isinf(af.compile(out, target=chip)(np.full((1, 1, 2, 2), 32768.0))).all()


def test_the_oldest_chips_divide_by_a_rounded_reciprocal():
    """N44: six times fp16(1/3) is below two."""
    x = af.input((1, 4), name="x")
    data = np.full((1, 4), 6.0)
    assert (run(x / 3.0, [data], "h12")[0][0] == np.float16(6 * np.float64(np.float16(1 / 3)))).all()
    assert (run(x / 3.0, [data], "h13")[0][0] == 2.0).all()


def test_where_chips_differ_is_told_by_node():
    from aneforge.sim.compare import differences, steps_apart
    from aneforge.sim.nodes import NodeValues

    out, data = small_net()
    models = {chip: af.compile(out, target=chip) for chip in ("m1", "m4", "m5")}
    values = {chip: NodeValues(model.program, model.run({"x": data[0]}, trace=True)) for chip, model in models.items()}
    assert not any(each.changed for each in differences(values["m1"], values["m4"]))
    found = differences(values["m1"], values["m5"])
    assert [each.node for each in found] == ["conv_0", "relu_0", "max_pool_0", "conv_1", "y"]
    first = found[0]
    assert first.changed > 100
    assert 0 < first.relative < 2e-3
    assert first.elements == 16 * 144
    one, two = np.array([1.0, -0.0, 2.0**-24], np.float16), np.array([1.0009765625, 0.0, -(2.0**-24)], np.float16)
    assert steps_apart(one, two).tolist() == [1, 0, 2]


def test_run_compares_chips_and_takes_batches(tmp_path, capsys):
    from aneforge.cli import run as command

    net = tmp_path / "net.py"
    net.write_text("from test_sim_run import small_net\nout = small_net()[0]\n")
    command.run(str(net), "m1,m4,m5", command.RunOptions())
    told = capsys.readouterr().out
    assert "m4: the same bits in the outputs and in 5 nodes that both show, on 1 sample" in told
    assert "m5: 5 of 5 nodes that both show differ, first at conv_0" in told
    assert told.count("y [1, 8, 6, 6] ") == 3  # the outputs of each chip
    given, kept = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(given, x=small_net()[1])
    command.run(str(net), "m1", command.RunOptions(str(given), str(kept), batch=True))
    assert "5 runs, 0 with a number that is not finite" in capsys.readouterr().out
    with np.load(kept) as held:
        assert held["y"].shape == (5, 1, 8, 6, 6)
    for options in (command.RunOptions(batch=True), command.RunOptions(str(given), batch=True, trace=True)):
        with pytest.raises(AneforgeError, match="batch: it runs the samples of inputs"):
            command.run(str(net), "m1", options)
    with pytest.raises(AneforgeError, match="trace: it takes one chip"):
        command.run(str(net), "m1,m5", command.RunOptions(trace=True))


NATIVE_LAYERS = (
    *("sdpa", "topk", "sort", "argmax", "cross_product", "cross_correlation", "cost_volume", "fps", "radius_search"),
    *("minmax_norm", "lrn", "space_to_channel", "channel_to_space", "space_to_batch", "batch_to_space", "flatten"),
    *("input_view", "dynamic_slice", "scaled_elementwise"),
)


@pytest.mark.parametrize("name", NATIVE_LAYERS)
def test_every_native_layer_runs_and_gives_fp16(name):
    cases = [case for case in LOWERED if case.op == name] or [case for case in LOWERED if case.op.startswith(name)]
    ran = 0
    for case in cases:
        graph, arrays = built(case)
        try:
            found, _ = run(graph, halves(arrays), "h17s", trace=True)
        except CompileError:  # some shapes are refused on every chip
            continue
        ran += 1
        assert all(value.dtype == np.float16 for value in found)
        want = af.evaluate(graph, dict(zip(graph.inputs, halves(arrays), strict=True)))
        for one, two in zip(found, want, strict=True):
            np.testing.assert_allclose(one.astype(np.float64), two, rtol=0.02, atol=0.02)
    if name == "topk":  # three and four are refused
        x = af.input((1, 8), name="x")
        assert run(af.topk(x, 5), [np.arange(8.0)[None]], "h17s")[0][0].tolist() == [[7.0, 6.0, 5.0, 4.0, 3.0]]
        ran += 1
    assert ran


def test_positions_come_back_as_fp16_numbers():
    """N45: exact below 2048; above, the nearest fp16 number."""
    x = af.input((1, 4096), name="x")
    order = af.sort(x, return_indices=True)
    found = run(order, [np.arange(4096.0)[None]], "h17s")[0][0].reshape(-1)
    np.testing.assert_array_equal(found[:2049], np.arange(2049))
    assert found[2049] == 2050.0
    assert found.dtype == np.float16


def test_steps_of_native_layers_are_rounded():
    """2048 + 1 is 2050 in fp16, and three times that 6152; one rounding at the end would give 6148."""
    a, b = af.input((1, 1, 1, 4), name="a"), af.input((1, 1, 1, 4), name="b")
    out = af.scaled_elementwise(a, b, "Add", 3.0)
    data = [np.full((1, 1, 1, 4), 2048.0), np.full((1, 1, 1, 4), 1.0)]
    assert (run(out, data, "h17s")[0][0] == 6152.0).all()
