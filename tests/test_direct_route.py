"""One answer by either route: the table of statuses, preflight, compile and the validators agree on every op."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import test_graph_ops
from cli_kit import run
from netplist_kit import unit, written
from validator_cases import CASES

import aneforge as af
from aneforge.chips import Family, all_targets, op_routes, op_status, target
from aneforge.chips.ops import ROUTES
from aneforge.compiler.legal.translate import lowered_layers, query_of_op
from aneforge.engine.native import ParamError, checked_params, layer_type
from aneforge.errors import AneforgeError
from aneforge.graph import Graph, definitions
from aneforge.graph import layer_forms as native
from aneforge.study.validate.layer import validate_layer

CHIPS = ("h12", "h13", "h14", "h15", "h16s", "h17s")
ORDER = ("native", "decompose", "reject")
WORDS = {"oversize": "reject", "risk": "native"}
IMAGE = (1, 8, 4, 4)
LEAVES = {"host", *(name for name, declared in definitions().items() if declared.leaf)}
OPS = sorted({*definitions(), "random_uniform", "random_normal"} - (LEAVES - {"random_uniform", "random_normal"}))

FORMS = {
    "floor_div": lambda x: af.floor_div(x, 3.0),
    "prelu": lambda x: x.prelu(np.full(8, 0.25)),
    "random_normal": lambda x: x + af.random_normal(IMAGE, 0.0, 1.0, seed=1),
    "random_uniform": lambda x: x + af.random_uniform(IMAGE, 0.0, 1.0, seed=1),
    "real_div": lambda x: x / 3.0,
    "ring_read": lambda x: x + af.ring_read(af.live_state((1, 8, 4, 5), "cache"), 3, 4),
    "image_plane": lambda x: x.mean([1]) + af.image_input((1, 4, 4, 4), format="&BGA").mean([1]),
    "tile": lambda x: x.mean([2, 3]).tile([1, 1, 4, 1]),
    "resample": lambda x: af.resample(x, af.input((1, 4, 4, 2)), "nearest"),
    "native_resample": lambda x: native.native_resample(x, np.zeros((1, 2, 4, 4)), "NearestNeighbor"),
}
"""Forms that the cases of the graph ops do not have: the oldest chips divide by a stored number only, say."""

MEASURED = {(op, "conversion", chip) for op in ("crop_resize", "native_crop_resize") for chip in ("h16s", "h17s")}
"""Where seed and silicon disagree: the A14 floor stays as legality, and M4 and M5 do not reach the op (C12)."""


@cache
def graphs(op):
    """Graphs that have the op, in one or more of its forms."""
    cases = [case for case in test_graph_ops.CASES if case.op == op]
    built = [Graph.of(case.build(*map(af.input, (array.shape for array in case.arrays)))) for case in cases]
    built += [Graph.of(FORMS[op](af.input(IMAGE)))] if op in FORMS else []
    return [graph for graph in built if graph.inputs and any(node.op == op for node in graph.nodes)]


def reported(report, op):
    """What preflight says of the nodes of one op, by name."""
    statuses = {}
    for status in ("native", "risk", "decompose", "reject", "oversize"):
        for entry in getattr(report, status):
            if entry.op == op:
                statuses[entry.name] = WORDS.get(status, status)
    return statuses


def outcome_of(programs, chip, names):
    """What compile does with nodes; nothing where it stops at another node."""
    if chip in programs.refused:
        refused = {refusal.node for refusal in programs.refused[chip].refusals}
        return {name: "reject" for name in names if name in refused}
    rewritten = {record.node for record in programs[chip].rewrites}
    return {name: "decompose" if name in rewritten else "native" for name in names}


def best(statuses):
    """The status of an op is that of its best form: a size or an attribute may refuse another."""
    return min(statuses, key=ORDER.index)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("op", OPS)
def test_the_table_says_what_preflight_says_and_compile_does(op, route):
    checked, compiled = {chip: [] for chip in CHIPS}, {chip: [] for chip in CHIPS}
    for graph in graphs(op):
        reports, programs = af.preflight_all(graph, CHIPS, route), af.compile_all(graph, CHIPS, route=route)
        for chip in CHIPS:
            assert reports[chip].ok == (chip not in programs.refused), chip
            statuses = reported(reports[chip], op)
            outcomes = outcome_of(programs, chip, statuses)
            assert outcomes.items() <= statuses.items(), chip
            checked[chip].append(max(statuses.values(), key=ORDER.index))
            compiled[chip] += outcomes.values()
    for chip in CHIPS:
        status = op_status(op, target(chip).family5, route)
        assert (best(checked[chip]) == status) != ((op, route, chip) in MEASURED), (chip, checked[chip])
        if (op, route, chip) not in MEASURED:
            assert best(compiled[chip] or ["reject"]) == status, (chip, compiled[chip])


@pytest.mark.parametrize("op", OPS)
def test_the_usual_route_converts_and_holds_layers_as_bridges(op):
    """From A13 on ``op_status`` without a route is what compile does without one."""
    statuses = {chip: set() for chip in CHIPS[1:]}
    for graph in graphs(op):
        reports = af.preflight_all(graph, CHIPS[1:], None)
        for chip, seen in statuses.items():
            seen.add(max(reported(reports[chip], op).values(), key=ORDER.index))
    for chip, seen in statuses.items():
        if (op, "conversion", chip) not in MEASURED:
            assert best(seen) == op_status(op, target(chip).family5), chip


def units_of(graph, op):
    """The questions about the units that the nodes of an op are, where a netplist can state them."""
    for node in graph.nodes:
        try:
            queries = [query_of_op(each) for each in lowered_layers(node.signature)] if node.op == op else []
        except AneforgeError:
            continue  # phase 0 rewrites it
        for query in queries:
            if query is not None and None not in query.shapes:
                yield query


def stated(query):
    """The parameters of a unit; None where it needs one whose name is not published."""
    known = layer_type(query.op)
    params = {key: value for key, value in query.attrs.items() if key in known.params}
    unpublished = set(query.attrs) - set(params) - {"OutputChannels", "NumGroups", "interior"}
    if unpublished or not known.is_published:
        return None
    try:
        return checked_params(known, params)
    except ParamError:
        return None


@pytest.mark.parametrize("op", OPS)
def test_the_validators_take_the_units_of_what_is_native_when_authored(op):
    for graph in graphs(op):
        reports = af.preflight_all(graph, CHIPS, "direct")
        for query in units_of(graph, op):
            params = stated(query)
            for chip in CHIPS:
                if params is not None and set(reported(reports[chip], op).values()) == {"native"}:
                    fields = {key: query.attrs[key] for key in ("OutputChannels", "NumGroups") if key in query.attrs}
                    verdict = validate_layer(query.op, params, query.shapes, chip, fields=fields)
                    assert verdict.accepted, str(verdict)


def test_every_op_is_asked_about():
    assert len(OPS) == 160
    assert all(graphs(op) for op in OPS)


@pytest.mark.parametrize("route", ROUTES)
def test_the_listing_is_the_table(route, monkeypatch, capsys):
    status, text, _ = run(f"ops --target {','.join(CHIPS)} --route {route} --json", monkeypatch, capsys)
    assert status == 0
    for row in json.loads(text):
        for chip in CHIPS:
            listed = row["targets"][chip][route]["value"]
            assert listed == op_status(row["op"], target(chip).family5, route), (row["op"], chip)


# Sine and cosine: no unit computes them (chapter 26).


@pytest.mark.parametrize("op", ["sin", "cos"])
def test_sine_has_one_answer_by_the_direct_route(op, tmp_path, monkeypatch, capsys):
    chips = [chip.name for chip in all_targets(only_28=True)]
    wave = getattr(af.input(IMAGE, name="x"), op)().named("wave")
    reports, programs = af.preflight_all(wave, chips, "direct"), af.compile_all(wave, chips, route="direct")
    kind = {"Type": op.capitalize()}
    netplist = af.load(written(tmp_path, {"u": unit("Neuron", "x", kind)}, {"x": IMAGE}, {"y": "u"}))
    authored = af.compile_all(netplist, chips)
    for name, chip in zip(chips, map(target, chips), strict=True):
        assert [entry.name for entry in reports[name].reject] == ["wave"]
        assert name in programs.refused
        assert name in authored.refused
        assert not af.validate_network(wave, name, "direct").accepted
        assert not validate_layer("Neuron", kind, [IMAGE], name).accepted
        if chip.family5 is not None:
            assert op_status(op, chip.family5, "direct") == "reject"
    assert {status["value"] for status in af.op_info(op)["routes"]["direct"].values()} == {"reject"}
    _, text, _ = run(f"ops {op} --target m1,m5 --route direct --json", monkeypatch, capsys)
    assert {cell["direct"]["value"] for cell in json.loads(text)[0]["targets"].values()} == {"reject"}


@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_the_refusal_of_a_sine_says_why_and_what_to_do(chip):
    with pytest.raises(af.CompileError) as caught:
        af.compile(af.input(IMAGE).sin().named("wave"), target=chip, route="direct")
    message = str(caught.value)
    assert "wave: sin [1, 8, 4, 4]" in message
    assert "sin cannot be authored on" in message
    assert "no unit computes sine or cosine" in message
    assert "Use the conversion route" in message
    assert af.preflight(af.input(IMAGE).sin(), chip).ok


def test_a_tangent_is_written_without_a_sine_where_it_is_authored():
    program = af.compile(af.input(IMAGE).clip(-1.2, 1.2).tan(), target="m5", route="direct").program
    assert not {"sin", "cos"} & {op.kind for op in program.module.ops}


# Authored units: as their validators say, and never rewritten.


def authored(*tensors):
    return Graph(list(tensors), route="direct")


def test_an_authored_resize_is_refused_as_its_validator_says():
    up = af.resize_bilinear(af.input(IMAGE, name="x"), 8, 8).named("up")
    verdict = validate_layer("Resize", {"Height": 8, "Width": 8}, [IMAGE], "m1")
    assert verdict.message == "failed to map resize layer on this arch"
    with pytest.raises(af.CompileError) as caught:
        af.compile(authored(up), target="m1")
    assert caught.value.reject == verdict.message
    assert caught.value.refusals[0].findings[0].stage == verdict.stage == "validator"
    assert af.preflight(authored(up), "m1", None).reject[0].string == verdict.message
    assert not af.validate_network(authored(up), "m1").accepted
    assert af.preflight(authored(up), "m2", None).counts["native"] == 1
    # The same op in a graph that is not authored is written with other units.
    assert af.preflight(up, "m1", "direct").decompose[0].rewrite == "resize-deconvolution"


def bridged(tag):
    """A unit of the validators' cases as a graph; None where a bridge states it otherwise."""
    params, bottoms, fields, _ = CASES[tag]
    try:
        return authored(af.bridge(tag, [af.input(shape) for shape in bottoms], **(params or {}), **fields))
    except AneforgeError:
        return None


@pytest.mark.parametrize("tag", [tag for tag in CASES if bridged(tag) is not None])
def test_an_authored_unit_is_taken_as_its_validator_says(tag):
    params, bottoms, fields, _ = CASES[tag]
    programs = af.compile_all(bridged(tag), CHIPS)
    for chip in CHIPS:
        if (tag, chip) == ("Reshape", "h12"):
            continue  # there a reshape must flatten (chapter 35), which its parameters alone do not show
        verdict = validate_layer(tag, params or {}, bottoms, chip, fields=fields)
        assert verdict.accepted == (chip not in programs.refused), (str(verdict), str(programs.refused.get(chip)))
        if verdict.accepted and chip != "h12":
            assert not programs[chip].rewrites


# Bridges in a converted program.


def test_whole_tensor_positions_are_refused_where_conversion_is_asked_for():
    """Chapter 26: rejected through conversion on the M1, and run through direct authoring there (C13)."""
    places = native.global_arg(af.input(IMAGE, name="x"), True, 3)
    unit_of = "GlobalArgMinMax", {"Type": "Max", "Dimension": "Width"}, [IMAGE]
    for chip, family in (("m1", Family.A13), ("m2", Family.A14), ("m3", Family.A15), ("m5", Family.A16)):
        for route in ROUTES:
            accepted = validate_layer(*unit_of, chip, route).accepted
            assert accepted == (route == "direct" or family >= Family.A15)
            assert af.preflight(places, chip, route).ok == accepted
            assert (not af.compile_all(places, chip, route=route).refused) == accepted
            assert af.validate_network(places, chip, route).accepted == accepted
            assert (op_status("global_arg", family, route) == "native") == accepted
        assert af.compile(places, target=chip).route == "conversion"  # which holds it as a bridge
        assert op_status("global_arg", family) == "native"
    refusal = af.preflight(places, "m1").reject[0]
    assert refusal.route == "conversion"
    assert refusal.other_route == "direct: accept"
    assert "the direct route" in refusal.hint


@pytest.mark.parametrize("op", [op for op in OPS if definitions()[op].native_layer])
def test_a_row_of_a_network_is_what_the_validator_of_its_unit_says(op):
    """Each row names the route by which the unit is taken or refused."""
    for graph in graphs(op):
        for chip in CHIPS[1:]:
            for query in units_of(graph, op):
                params = stated(query)
                rows = [row for row in af.validate_network(graph, chip, "conversion").rows if query.op in row.layers]
                if params is None or len(rows) != 1 or rows[0].layers != (query.op,):
                    continue
                verdict = validate_layer(query.op, params, query.shapes, chip, rows[0].route)
                assert verdict.accepted == rows[0].accepted, (str(verdict), rows[0])


def test_no_route_is_denied_that_there_is():
    """Only a layer that no model program has lacks a row of its own, and a converted program bridges it."""
    assert not op_routes("cross_product").conversion
    assert op_status("cross_product", Family.A13, "conversion") == "native"
    for op in ("softplus", "select", "batch_norm", "crop", "l2_norm", "cumsum"):
        entry = af.preflight(graphs(op)[0], "m1")
        assert {report.other_route for report in (*entry.native, *entry.decompose) if report.op == op} <= {
            "direct: accept",
            "direct: decompose",
        }
