"""Attempts to break the compiler: every op for chips of every kind, odd shapes, and the faults that were found so."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import test_graph_ops
from test_compile import check_program
from test_lower import built

import aneforge as af
from aneforge.chips import Family, all_targets, target
from aneforge.cli import compile as command
from aneforge.compiler.compile import compile_target, lowered_for
from aneforge.compiler.legalise.views import _mirror_runs
from aneforge.compiler.passes import run_passes
from aneforge.compiler.refusal import CompileError
from aneforge.compiler.validate import Validator
from aneforge.engine.interpret import interpret
from aneforge.engine.ir import AnecError
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.graph import Graph
from aneforge.study.model import Model

RNG = np.random.default_rng(31)
# One chip by direct authoring, one without a texture engine, one with, and the two newest of their line.
CHIPS = ("h12", "h13", "h14g", "h16g", "h18g")


def rand(*shape):
    return RNG.standard_normal(shape).astype(np.float16).astype(np.float64)


def strict(text):
    """JSON as other languages read it, which know no infinite number."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def attempt(graph, chip, arrays=None, tolerance=2e-2):
    """A program that keeps every promise, or None with a refusal that names the user's node."""
    names = set(graph.names().values())
    found = target(chip)
    route = "direct" if found.family5 is Family.OLDER else "conversion"
    expected = af.preflight(graph, found, route).ok
    try:
        program = compile_target(graph, found, watch=Validator())
    except AneforgeError:
        with pytest.raises(CompileError) as caught:
            compile_target(graph, found)
        assert not expected, f"preflight accepts what is refused: {caught.value}"
        assert caught.value.sources
        assert set(caught.value.sources) <= names
        assert "\n" not in str(caught.value)
        return None
    check_program(program)
    for made in (*program.layers, *program.weights):
        assert made.sources
        assert set(made.sources) <= names
    assert str(program)
    strict(json.dumps(program.to_json()))
    text = str(program.module)
    assert str(verify(parse(text))) == text
    if arrays is not None:
        compare(Model(graph, program), graph, arrays, tolerance)
    return program


def compare(model, graph, arrays, tolerance):
    got, want = model.reference(*arrays), af.evaluate(graph, list(arrays))
    for one, two in zip(got if len(graph.outputs) > 1 else [got], want, strict=True):
        assert one.shape == two.shape
        finite = np.isfinite(two)
        np.testing.assert_array_equal(np.isfinite(one), finite)
        most = max(1.0, float(np.abs(two[finite]).max(initial=0.0)))
        np.testing.assert_allclose(one[finite], two[finite], rtol=0, atol=tolerance * most)


def same_on(out, *chips, arrays=None):
    graph = Graph.of(out)
    given = [rand(*each.shape) for each in graph.inputs] if arrays is None else arrays
    return [attempt(graph, chip, given) for chip in chips]


# Every op.

CASES = [case for case in test_graph_ops.CASES if case.op not in ("random_uniform", "random_normal")]


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.op}" for number, case in enumerate(CASES)])
def test_every_op_compiles_or_says_why_not(case):
    graph, arrays = built(case)
    for chip in CHIPS:
        attempt(graph, chip, arrays)


# Targets.


def small():
    x = af.input((1, 8, 16, 16), name="image")
    return af.conv(x, np.full((8, 8, 3, 3), 0.01), pad=1).relu().max_pool(2, 2)


@pytest.mark.parametrize("name", [each.name for each in all_targets() if each.constructible])
def test_every_target_that_a_build_constructs_has_programs(name):
    """Those of newer builds (M6, A20) number their tables otherwise."""
    assert attempt(Graph.of(small()), name) is not None


def test_a_name_without_a_table_is_refused_and_stops_no_other():
    compiled = af.compile_all(small(), "h20, m1")
    assert list(compiled) == ["h13"]
    assert "no build constructs this target" in str(compiled.refused["h20"])
    with pytest.raises(CompileError, match="h20"):
        af.compile(small(), target="h20")


def test_programs_of_many_targets_are_found_by_any_name():
    compiled = af.compile_all(small().softmax(), "h11, m1")
    assert "M1" in compiled
    assert "h13" in compiled
    for absent in ("h11", "A12 Bionic", "m2", "nothing"):
        assert absent not in compiled
    assert compiled["M1"] is compiled["h13"]
    for refused in ("h11", "A12 Bionic"):
        with pytest.raises(CompileError, match="Softmax"):
            compiled[refused]
    with pytest.raises(UnknownNameError, match="m2: no program was compiled for it; choose one: h11, h13"):
        compiled["m2"]


# Refusals.


@pytest.mark.parametrize("validate", [False, True])
def test_a_refusal_before_the_phases_names_the_node_too(validate):
    wide = af.input((1, 20000), name="x").relu().named("wide")
    line = af.topk(af.input((4, 16), name="line"), 5).named("best")
    for out, chip, by in (
        (wide, "h12", "check-legality"),
        (line, "h11", "check-legality"),
        (wide, "m1", "check-legality"),
        (line, "m1", "check-legality"),
    ):
        with pytest.raises(CompileError) as caught:
            af.compile(out, target=chip, validate=validate)
        assert caught.value.refused_by == by
        assert caught.value.sources == (out.name,)


def test_a_divisor_whose_reciprocal_fp16_does_not_hold_is_refused():
    """Below A13 a division is a product; 1 / 1e-5 is no fp16 number, and every quotient would be infinite."""
    x = af.input((1, 4, 8, 8), name="x")
    with pytest.raises(CompileError, match=r"real_div_0: .*divisor 1.00136e-05 has no fp16 reciprocal") as caught:
        af.compile(x / 1e-5, target="h12")
    assert caught.value.refused_by == "legacy-forms"
    assert all(same_on(x / np.array([0.5, 0.0, np.inf, -3.0]).reshape(1, 4, 1, 1), "h12", "h13"))
    assert all(same_on(x / 1e-5, "h13"))


def test_what_the_gate_refuses_is_not_run_to_validate_it():
    x = af.input((1, 70_000, 4096, 4096), name="x")  # two terabytes
    with pytest.raises(CompileError, match="check-legality"):
        af.compile(x.relu(), target="m1", validate=True)


def test_a_pass_that_can_make_no_sense_of_a_text_is_named():
    """Code that nobody has verified: an axis that does not exist is found by whoever looks for it."""
    turn = '"anec.transpose"(%{}) {{transpose_list = [[3, 9], [9, 3]]}} : (!) -> !'
    lines = [
        '%0 = "anec.live_in"() {name = "x"} : () -> !',
        f"%1 = {turn.format(0)}",
        f"%2 = {turn.format(1)}",
        '"anec.live_out"(%2) {names = ["y"]} : (!) -> ()',
    ]
    text = "\n".join(lines).replace("!", "tensor<1x1x2x3x4xf16>")
    with pytest.raises(AnecError, match=r"op 1 \(anec.transpose\): .* outside NDCHW"):
        verify(parse(text))
    with pytest.raises(AnecError, match="pass 'collapse-transposes' cannot handle this code"):
        run_passes(parse(text), target("h13"), ["collapse-transposes"])
    with pytest.raises(AnecError, match="belongs to no layer; run phase 1"):
        run_passes(parse(text), target("h13"), ["assign-engines"], ["layers"])


# Programs that do little, and inputs that the user does not feed.


def test_a_program_that_hands_its_input_on():
    x = af.input((2, 3), name="x")
    (program,) = same_on([x, x], "h13")
    assert len(program) == 0
    assert all(entry.changes >= 0 for entry in program.log)
    assert [port.name for port in program.outputs] == ["x", "x_again"]


def test_open_bounds_are_json():
    program = af.compile(af.input((2, 3), name="x").threshold(0.5), target="m1").program
    record = strict(json.dumps(program.to_json()))
    assert record["layers"][0]["attrs"] == {"min_val": 0.5, "max_val": "inf"}


def test_what_the_host_draws_has_a_port_of_its_own_and_its_numbers():
    x = af.input((1, 4, 8, 8), name="x")
    dropped = af.dropout(x, 0.5, seed=3).named("dropped")
    out = [dropped, dropped + af.random_normal((1, 4, 8, 8), seed=4)]
    for chip in ("h11", "m1", "m6"):
        model = af.compile(out, target=chip)
        inputs = [port.name for port in model.program.inputs]
        assert "dropped" not in inputs  # that is the name of what comes out
        assert inputs[0] == "x"
        compare(model, Graph(out), [rand(1, 4, 8, 8)], 1e-3)
    named = {port.name: port for port in af.compile(out, target="m1").program.inputs}
    mask = next(port for name, port in named.items() if name.startswith("dropped."))
    zero = np.zeros((1, 4, 8, 8))
    assert not af.compile(out, target="m1").reference(zero + 1, **{mask.name: zero})[0].any()


def test_wrong_feeds_and_targets_are_told_in_one_line():
    model = af.compile(small(), target="m1")
    data = rand(1, 8, 16, 16)
    with pytest.raises(AneforgeError, match=r"picture: not an input of the program\. Choose from: image"):
        model.reference(data, picture=data)
    with pytest.raises(AneforgeError, match=r"picture: not an input of the program\. Choose from: image"):
        model.reference(image=data, picture=data)
    with pytest.raises(AneforgeError, match="input 'image': it takes numbers"):
        model.reference("a.png")
    assert list(af.compile_all(small(), target("m1"))) == ["h13"]
    with pytest.raises(AneforgeError, match=r"3\.5"):
        af.compile_all(small(), 3.5)


# Pads that mirror: the texture engine's modes on chips without one.


@pytest.mark.parametrize(("mode", "left_out"), [("symmetric", 0), ("reflect", 1)])
def test_a_mirror_is_runs_forwards_and_backwards(mode, left_out):
    for extent, before, after in itertools.product(range(1, 6), range(12), range(12)):
        runs = _mirror_runs(extent, before, after, left_out)
        places = [start + step * number for start, size, step in runs for number in range(size)]
        assert places == np.pad(np.arange(extent), (before, after), mode=mode).tolist()


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((5,), [(2, 3)]),
        ((3, 4), [(1, 2), (0, 3)]),
        ((2, 3, 5), [(1, 0), (2, 2), (4, 1)]),
        ((1, 2, 6, 7), [(0, 0), (0, 0), (2, 1), (3, 3)]),
        ((2, 2, 3, 4, 5), [(1, 1), (0, 1), (2, 0), (1, 2), (0, 4)]),
    ],
)
def test_mirrored_pads_have_programs_everywhere(mode, shape, widths):
    """Preflight calls it the software route of the M1."""
    out = af.input(shape, name="x").pad(widths, mode).relu()
    mirrored, native = same_on(out, "h13", "h14g")
    assert not any(layer.op == "padding" for layer in mirrored)
    assert any(layer.op == "padding" for layer in native)
    assert not any(layer.labels.get("storage") == "q4" for layer in mirrored)  # N18


# Layouts of our own stay within the caps of every chip.


def _wide(build, *shape):
    return lambda: build(af.input(shape, name="x"))


LAYOUTS = {
    "zeros beside the channels": _wide(lambda x: x.pad([(0, 0), (1, 2), (0, 0), (0, 0)]), 1, 2, 130, 129),
    "a number before the batch": _wide(lambda x: x.pad([(1, 0), (0, 0), (1, 1), (0, 2)], value=1.5), 2, 2, 130, 129),
    "edges repeated on the channels": _wide(
        lambda x: x.pad([(0, 0), (2, 1), (0, 1), (0, 0)], "replicate"), 1, 2, 130, 129
    ),
    "a mirror on the channels": _wide(lambda x: x.pad([(0, 0), (2, 1), (0, 0), (0, 0)], "reflect"), 1, 3, 130, 129),
    "a long first axis": _wide(lambda x: x.pad([(1, 2), (0, 0)]), 16381, 2),
    "images of a batch": _wide(lambda x: x.slice_by_size([1, 0, 0, 0], [1, *x.shape[1:]]), 2, 64, 257, 66),
    "a batch backwards": _wide(lambda x: x.reverse([0]), 2, 64, 257, 66),
    "a batch joined": _wide(lambda x: af.concat([x, x.relu()], axis=0), 1, 64, 257, 66),
    "images picked": _wide(lambda x: af.gather(x, [1, 0, 1], axis=0), 2, 64, 257, 66),
    "softmax over a batch": _wide(lambda x: x.softmax(0), 2, 64, 257, 66),
    "sums over a batch": _wide(lambda x: x.sum(0), 2, 64, 257, 66),
    "means over batch and maps": _wide(lambda x: x.mean([0, 2, 3]), 2, 3, 130, 129),
    "squares over batch and maps": _wide(lambda x: x.sum_square([0, 2, 3]), 2, 3, 130, 129),
    "largest of batch and channels": _wide(lambda x: x.amax([0, 1]), 3, 22_000, 1, 2),
    "means over a batch of volumes and their columns": _wide(lambda x: x.mean([0, 4]), 2, 200, 10, 10, 4),
    "more rows than channels": _wide(lambda x: x @ rand(2, 3), 300, 220, 2),
    "more rows than channels in a batch": _wide(lambda x: x @ rand(2, 3), 3, 110, 220, 2),
    "running sums": _wide(lambda x: x.cumsum(2), 300, 220, 2),
    "a run out of a long line": _wide(lambda x: af.input_view(x, 12_345, 999).relu(), 1, 16, 40, 41),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_our_own_fit_every_chip(name):
    assert all(same_on(LAYOUTS[name](), "h13", "h16g"))


@pytest.mark.parametrize(
    ("shape", "order"), [((4, 65536), (0, 1)), ((65535, 1, 256), (1, 0, 2)), ((7, 65536, 1, 1), (0, 2, 1, 3))]
)
def test_a_transpose_that_moves_nothing_has_the_caps_of_one(shape, order):
    out = af.input(shape, name="x").transpose(order)
    assert af.preflight(out, "m1").ok
    assert af.compile(out, target="m1").program is not None


def test_reductions_in_two_steps_are_the_graphs_own():
    """Before any pass: where no layout takes batch and maps together, the batch comes last."""
    x = af.input((2, 3, 130, 129), name="x")
    lowered = lowered_for(Graph.of(x.sum_square([0, 2, 3])), target("m1"))
    sums = [op for op in lowered.module if op.kind == "reduce_sum"]
    assert [(op.attrs["axes"], "square_input" in op.attrs) for op in sums] == [((3, 4), True), ((2,), False)]
    data = rand(2, 3, 130, 129)
    (found,) = interpret(lowered.module, [lowered.inputs[0].to_ndchw(data)]).values()
    np.testing.assert_allclose(found.reshape(-1), np.square(data).sum((0, 2, 3)), rtol=1e-12)


# The command.


def test_the_command_says_1_for_a_refusal_of_one_target_or_of_several(tmp_path, capsys):
    model = tmp_path / "net.py"
    model.write_text('import aneforge as af\nx = af.input((1, 4, 8, 8), name="x")\nout = x.softmax()\n')
    assert command.run(str(model), "m1", None, None, None, False, False) == 0
    assert command.run(str(model), "h12", None, None, None, False, False) == 1
    told = capsys.readouterr()
    assert told.err.startswith("aneforge: softmax_0: Softmax: the layer needs the support byte softmax (0x815)")
    assert "Softmax is not supported by this ANE architecture" in told.err
    assert told.err.count("\n") == 1
    assert command.run(str(model), "h12, m1, h20", None, None, None, False, True) == 1
    record = strict(capsys.readouterr().out)
    assert set(record["refused"]) == {"h12", "h20"}
