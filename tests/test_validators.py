"""The validators, layer by layer: accept at the boundary, reject one step beyond, and the exact words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import seed_tables as seed
from validator_cases import CASES, HEADS, LRN, MAP, RANK, ROW, SORT

import aneforge as af
from aneforge.chips import op_routes, store
from aneforge.compiler.legal.findings import PlacementFinding
from aneforge.compiler.legal.judge import judge
from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules import RULES
from aneforge.compiler.legal.rules.base import STAGES, rule_records, validator_records
from aneforge.compiler.refusal import CompileError
from aneforge.engine.native import layer_type, layer_types
from aneforge.errors import ArgumentError, UnknownNameError
from aneforge.study.validate import EXPORTS, validate_layer

REJECTS = [(tag, case) for tag, (_, _, _, cases) in CASES.items() for case in cases]


def test_every_type_has_a_case():
    assert set(CASES) == {layer.tag for layer in layer_types()}
    assert sum(layer.validator is not None for layer in layer_types()) == 50


@pytest.mark.parametrize("tag", [tag for tag, case in CASES.items() if case[0] is not None])
def test_a_layer_at_the_boundary_is_accepted(tag):
    params, bottoms, fields, _ = CASES[tag]
    chip = "m1" if tag in ("Conv", "CrossCorrelation") else "m5"  # whose kernels are the smallest
    verdict = validate_layer(tag, params, bottoms, chip, fields=fields)
    assert verdict.accepted, str(verdict)
    assert (verdict.message, verdict.route, verdict.layer) == ("", "direct", tag)
    assert verdict.stage in ("validator", "measured run")
    assert not [finding for finding in verdict.findings if finding.verdict == "reject"]


@pytest.mark.parametrize(("tag", "case"), REJECTS, ids=[f"{tag}: {case[0][:50]}" for tag, case in REJECTS])
def test_one_step_beyond_is_rejected(tag, case):
    message, chip, stage, bottoms, route, fields, more, changes = case
    params, good, stated, _ = CASES[tag]
    merged = {key: value for key, value in {**(params or {}), **changes}.items() if value is not None}
    verdict = validate_layer(
        tag, merged, good if bottoms is None else bottoms, chip, route, fields={**stated, **fields}, **more
    )
    assert not verdict.accepted, str(verdict)
    placements = [finding for finding in verdict.findings if isinstance(finding, PlacementFinding)]
    told = {verdict.message, *(finding.string or finding.message for finding in placements)}
    assert any(text == message or (message in text and '"' not in message) for text in told), told
    stages = {finding.stage for finding in verdict.findings if finding.verdict == "reject"} or {verdict.stage}
    assert stage in stages, stages
    assert verdict.stage == min(stages, key=STAGES.index)
    assert not re.search(r"%z?[sdu]|\{\w*\}", verdict.message + verdict.reason)
    assert verdict.evidence.confidence != "unknown"
    assert message in str(verdict) or message in verdict.reason or len(stages) > 1 or len(told) > 1


def published_strings():
    return {string for layer in layer_types() for string in layer.reject_strings}


def test_every_string_of_a_record_is_a_published_one():
    """The places of the vendor's strings are filled in, and nothing else is changed."""
    ours = {record["string"] for record in validator_records() if "string" in record} - {"ANECCompile() FAILED"}
    patterns = [
        re.compile(re.sub(r"%z?[sdu]", r"(.+)", re.escape(text).replace("\\%", "%"))) for text in published_strings()
    ]
    for string in ours:
        assert any(pattern.fullmatch(string) for pattern in patterns), string


UNSAID = {
    "SDPA layer must have only 4 or 5(optional mask) inputs": "a second wording of the count",
    "both concat inputs must have the same layout": "a layer has no layout: interleaves belong to ports",
    "Codegen Error: Invalid Texture CropCfg": "code generation (gate_limits.json CropResize)",
    "Invalid conv kernel %s = %zd, It should be in [%zd,%zd]": "conv-kernel-width and -height (gate_limits.json)",
    "Must have 2 inputs when convert EW to GOC": "the guard of a rewrite, not of the layer (fusion.json, S22)",
    "Cannot decompose layer on this architecture": "gather-envelope (gate_limits.json)",
    "Circular buffer is not supported on this architecture": "an answer by name (gate_limits.json)",
    "NE Input Transpose is not supported for this arch": "one engine's; the compiler has other ways to transpose",
}


def test_every_published_string_is_said_or_explained():
    patterns = {text: re.compile(re.sub(r"%z?[sdu]", r"(.+)", re.escape(text))) for text in published_strings()}
    said = {record["string"] for record in validator_records() if "string" in record}
    silent = {text for text, pattern in patterns.items() if not any(pattern.fullmatch(string) for string in said)}
    assert silent == set(UNSAID)


def test_every_check_of_the_validators_refuses_something():
    """Each rule of the validators is met by a case above."""
    met = set()
    for tag, (_, chip, _, bottoms, route, fields, more, changes) in REJECTS:
        params, good, stated, _ = CASES[tag]
        merged = {key: value for key, value in {**(params or {}), **changes}.items() if value is not None}
        verdict = validate_layer(
            tag, merged, good if bottoms is None else bottoms, chip, route, fields={**stated, **fields}, **more
        )
        met |= {finding.rule for finding in verdict.findings}
    unmet = {name for name, rule in RULES.items() if rule.validates} - met
    assert unmet == {"axis-set", "pool-mode"}  # a parser refuses both first; a compile can meet them


def test_what_a_parser_refuses_a_compile_meets_in_the_rules():
    m5 = af.target("m5")
    assert judge(Query("Softmax", (MAP,), attrs={"Dimension": ()}), m5, "direct").findings[0].rule == "axis-set"
    words = judge(Query("Pooling", (MAP,), attrs={"Type": "Min"}), m5, "conversion").findings
    assert 'Pooling mode "Min" is not available on this ANE architecture.' in {finding.string for finding in words}


def test_every_constraint_is_checked_or_says_why_not():
    """A layer whose only check is its count of bottoms has no other constraint left."""
    for entry in store.load("validators")["validators"]:
        layer = layer_type(entry["layer"])
        left = set(layer.constraints) - set(entry.get("unchecked", ()))
        checked = [check for check in entry["checks"] if check["check"] != "bottom-count"]
        rules = {name for name, rule in RULES.items() if {layer.tag, layer.name} & set(rule.ops)}
        named = any(record["op"] in (layer.tag, layer.name) for record in store.load("gate_limits")["ops"])
        listed = any(param.values for param in layer.params.values())
        reached = op_routes(layer.name).route("direct")
        never = reached is not None and all(status.value == "reject" for status in reached.values())
        assert not left or checked or rules or named or listed or never, (entry["layer"], left)
        assert all(entry.get("unchecked", {}).values())


# Stages.


def test_every_record_and_finding_has_a_stage():
    for records in rule_records().values():
        assert all(record["stage"] in STAGES for record in records)
    finding = judge(Query("TopK", (ROW,), attrs={"K": 3}), af.target("m5"), "direct").findings[0]
    assert finding.to_json()["stage"] == "code generation"
    assert finding.to_json()["route"] == "direct"


@pytest.mark.parametrize(
    ("tag", "chip", "route", "accepted", "stage"),
    [
        ("GlobalArgMinMax", "m1", "conversion", False, "frontend"),
        ("GlobalArgMinMax", "m1", "direct", True, "validator"),
        ("GlobalArgMinMax", "m3", "conversion", True, "validator"),
        ("TopK", "m1", "direct", False, "code generation"),
        ("TopK", "m1", "conversion", False, "frontend"),
        ("TopK", "m2", "direct", True, "measured run"),
        ("Sort", "m1", "direct", False, "code generation"),
        ("Sort", "m2", "direct", True, "measured run"),
        ("DynamicSlice", "m1", "direct", False, "code generation"),
        ("Neuron", "m1", "direct", True, "validator"),
        ("CostVolume", "m1", "direct", True, "measured run"),
        ("SDPA", "m1", "direct", True, "validator"),
    ],
)
def test_both_routes(tag, chip, route, accepted, stage):
    """Chapter 26, two compile routes and their gates; how far an accept is attested is in the data."""
    params, bottoms, fields, _ = CASES[tag]
    verdict = validate_layer(tag, params, bottoms, chip, route, fields=fields)
    assert (verdict.accepted, verdict.stage, verdict.route) == (accepted, stage, route), str(verdict)


def test_sine_by_conversion_only():
    """Chapter 26: sine has no bridge, so a chip that has it by conversion refuses it on the direct route."""
    wave = af.input((1, 8, 4, 4)).sin()
    assert af.preflight(wave, "m5").native[0].stage == "measured run"
    assert af.preflight(wave, "m5", "direct").reject[0].rule == "op-route"


def test_check_shows_stage_and_route():
    report = af.preflight(af.topk(af.input((4, 16)), 5), "m1")
    record = report.reject[0].to_json()
    assert (record["stage"], record["route"]) == ("code generation", "direct")
    text = str(af.check(af.topk(af.input((4, 16)), 5), "m1"))
    assert "on: M1, at code generation by the direct route" in text


def test_a_warning_is_no_reject():
    verdict = validate_layer("SDPA", {}, CASES["SDPA"][1], "m1")
    assert verdict.accepted
    assert [finding.rule for finding in verdict.findings] == ["sdpa-subtract-max"]
    assert "warning: SDPA: SubtractMax is off" in str(verdict)
    assert verdict.to_json()["findings"][0]["verdict"] == "wrong_result"


# The tables of the seed documents.


def test_table_22_4():
    """The five exports that are not about one layer."""
    assert set(EXPORTS) == {
        "_ANECValidate",
        "_ANECValidateMPSModule",
        "_ANECValidateMPSModuleCreate",
        "_ANECValidateMutableProcedureInfo",
        "_ANECValidateNetworkCreate",
    }
    import aneforge.study.validate as home

    assert all(callable(getattr(home, name)) for name in EXPORTS.values())


TABLE_22_5 = {
    "softmax": ("Softmax", {}, "h12", "m1"),
    "instance_norm": ("InstanceNormalization", {}, "h12", "m1"),
    "dropout": ("Dropout", {}, "m2", "m3"),
    "random": ("RandomGenerator", {}, "m2", "m3"),
    "affine": ("AffineTransform", {}, "m1", "m2"),
    "resize": ("Resize", {}, "m1", "m2"),
    "resample": ("Resample", {}, "m1", "m2"),
    "padding_mode": ("Padding", {"PaddingMode": "Reflective"}, "m1", None),
    "dynamic_goc": ("DynamicGOC", {}, None, "m1"),
    "conv3d": ("Conv", {"KernelDepth": 3}, "m5", None),
}


@pytest.mark.parametrize("op", [op for row in seed.TABLE_22_5 for op in row["ops"]])
def test_table_22_5(op):
    row = next(row for row in seed.TABLE_22_5 if op in row["ops"])
    tag, more, refusing, taking = TABLE_22_5[op]
    params, bottoms, fields, _ = CASES[tag]
    params = {**(params or {}), **more}
    if refusing is not None:
        verdict = validate_layer(tag, params, bottoms, refusing, fields=fields)
        assert not verdict.accepted
        assert verdict.stage == ("code generation" if op == "conv3d" else "validator")
        if row["byte"] is not None:
            assert f"{row['byte']:#x}" in " ".join(finding.message for finding in verdict.findings)
    if taking is not None:
        assert validate_layer(tag, params, bottoms, taking, fields=fields).accepted


LAYERS_26_1 = {
    "sdpa": "SDPA",
    "topk": "TopK",
    "sort": "Sort",
    "arg_min_max": "ArgMinMax",
    "global_arg_min_max": "GlobalArgMinMax",
    "pixel_shuffle": "PixelShuffle",
    "pixel_unshuffle": "PixelUnshuffle",
    "space_to_channel": "SpaceToChannel",
    "channel_to_space": "ChannelToSpace",
    "space_to_batch": "SpaceToBatch",
    "batch_to_space": "BatchToSpace",
    "minmax_norm": "MinMaxNormalization",
    "lrn": "LocalResponseNormalization",
    "gain_offset_control": "GOC",
    "cross_correlation": "CrossCorrelation",
    "cross_product": "CrossProduct",
    "furthest_point_sampling": "FurthestPointSampling",
    "radius_search": "RadiusSearch",
    "cost_volume": "CostVolume",
    "resize_hw": "Resize",
    "resample": "Resample",
    "affine": "AffineTransform",
    "input_view": "InputView",
    "dynamic_slice": "DynamicSlice",
    "tile": "Tile",
    "concat": "Concat",
}
NO_LAYER = {"crop_resize", "state", "ring_buffer_reader", "tensor_to_tensor_buffer", "tensor_buffer_to_tensor"}
"""CropResize fails code generation everywhere (C12); the others are no layers of a netplist."""


def test_table_26_1_is_covered():
    listed = {layer for row in seed.TABLE_26_1 for layer in row["layers"]}
    assert listed - set(LAYERS_26_1) - NO_LAYER <= {"ring_buffer_writer"}


@pytest.mark.parametrize("op", LAYERS_26_1)
def test_table_26_1(op):
    """The first family of each layer by direct authoring: the one before it refuses."""
    row = next(row for row in seed.TABLE_26_1 if op in row["layers"])
    told = row["first_family"].get(op, "A14" if op == "dynamic_slice" else "A13")
    if ("26.1", row["class"], "first_family", op) in seed.OVERRIDDEN:
        told = "A13"
    first = "m2" if told in (">A13", "A14") else "m1"
    params, bottoms, fields, _ = CASES[LAYERS_26_1[op]]
    assert validate_layer(LAYERS_26_1[op], params, bottoms, first, fields=fields).accepted
    if first == "m2":
        assert not validate_layer(LAYERS_26_1[op], params, bottoms, "m1", fields=fields).accepted


@pytest.mark.parametrize(
    ("atom", "tag", "broken"),
    [
        ("sdpa", "SDPA", {"bottoms": [HEADS, HEADS, (1, 8, 196, 64), (1, 1, 1, 1)]}),
        ("matmul", "MatrixMultiplication", {"bottoms": [(1, 8, 2, 1, 16), (1, 16, 1, 4)]}),
        ("gain_offset_control", "DynamicGOC", {"bottoms": [MAP, (1, 8, 4, 1), (1, 8, 1, 1)]}),
        ("layer_norm", "LayerNormalization", {"params": {"NumGroups": 5}}),
    ],
)
def test_table_26_2(atom, tag, broken):
    params, bottoms, fields, _ = CASES[tag]
    assert validate_layer(tag, params, bottoms, "m1", fields=fields).accepted
    assert not validate_layer(tag, broken.get("params", params), broken.get("bottoms", bottoms), "m1").accepted


# Bad questions.


def test_bad_questions():
    with pytest.raises(UnknownNameError, match="not a type of native layer"):
        validate_layer("TopQ", {}, [], "m1")
    with pytest.raises(ArgumentError, match="not a route"):
        validate_layer("TopK", RANK, [ROW], "m1", "sideways")
    for bottoms in ("x", [3], [(1, "a")], [(1, -2)], [[]], 5):
        with pytest.raises(ArgumentError, match="bottoms"):
            validate_layer("TopK", RANK, bottoms, "m1")
    with pytest.raises(ArgumentError, match="params"):
        validate_layer("TopK", [], [ROW], "m1")
    with pytest.raises(ArgumentError, match="dtypes"):
        validate_layer("TopK", RANK, [ROW], "m1", dtypes=["fp16", "fp16"])
    wrong = validate_layer("TopK", {**RANK, "K": "five"}, [ROW], "m5")
    assert (wrong.accepted, wrong.stage) == (False, "frontend")
    assert "InvalidParamSyntax" in wrong.message


@pytest.mark.parametrize("seed_", range(4))
def test_any_question_gets_an_answer_or_one_line(seed_):
    rng = np.random.default_rng(seed_)
    values = (0, 1, -1, 3, 2.5, True, "Width", "Max", None, [], [1, 2], [{}], [{"Dimension": "Depth", "Size": 2}], {})
    for layer in layer_types():
        keys = [*layer.params, "Rate", "PaddingSizes", "Low", "Dimension", "NumGroups"]
        for _ in range(8):
            params = {str(rng.choice(keys)): values[rng.integers(len(values))] for _ in range(rng.integers(0, 5))}
            known, good, _, _ = CASES[layer.tag]
            drawn = [tuple(map(int, rng.integers(0, 9, rng.integers(1, 7)))) for _ in range(rng.integers(0, 6))]
            answer = asked(layer.tag, {**(known or {}), **params}, good if rng.integers(2) else drawn)
            assert answer
            assert "\n" not in answer


def asked(tag, params, bottoms):
    """The message of a verdict, or of the error that says what is wrong with the question."""
    try:
        verdict = validate_layer(tag, params, bottoms, "m1")
    except af.AneforgeError as error:
        return str(error)
    assert json.dumps(verdict.to_json(), default=str)
    return "accepted" if verdict.accepted else verdict.message


def test_bottoms_may_be_tensors():
    x = af.input((1, 4, 1, 16))
    assert validate_layer("TopK", RANK, [x], "m5").accepted
    small = validate_layer("CrossProduct", {}, [af.input((1, 3, 1, 1), dtype="uint8")] * 2, "m5")
    assert "uint8" in small.message


# One answer: the validators and a compile.


def native_layers(rng):
    """A native layer as a tensor, and the question about it."""
    n = int(rng.integers(1, 20))
    k = int(rng.integers(1, 8))
    c = int(rng.integers(1, 20))
    r = int(rng.integers(1, 7))
    rows = af.input((4, 16))
    image = af.input((1, c, 4 * r, 4 * r))
    heads = [af.input((1, 2, 8, 16)) for _ in range(3)]
    wide = 2040 + n
    return [
        (af.topk(rows, k), "TopK", {**RANK, "K": k}, [(1, 4, 1, 16)]),
        (af.sort(rows), "Sort", SORT, [(1, 4, 1, 16)]),
        (af.lrn(image), "LRN", {**LRN, "KernelChannel": c, "Alpha": 1e-4}, [image.shape]),
        (af.space_to_channel(image, r), "SpaceToChannel", {"FactorX": r, "FactorY": r}, [image.shape]),
        (
            af.minmax_norm(image, ("Width", "Height", "Channel")[r % 3]),
            "MinMaxNorm",
            {"Dimension": ("Width", "Height", "Channel")[r % 3], "Epsilon": 1e-3},
            [image.shape],
        ),
        (af.sdpa(*heads), "SDPA", {"SubtractMax": True}, [*(each.shape for each in heads), (1, 1, 1, 1)]),
        (
            af.input((4, wide)).argmax(1),
            "ArgMinMax",
            {"Mode": "SpatialArgMax", "KernelWidth": wide, "KernelHeight": 1},
            [(1, 4, 1, wide)],
        ),
        (af.fps(af.input((64, 3)), k), "FurthestPointSampling", {"CentroidCount": k}, [(1, 3, 1, 64)]),
        (
            af.scaled_elementwise(image, image, "Add", 0.5),
            "ScaledElementWise",
            {"Type": "Add", "Scale": 0.5},
            [image.shape] * 2,
        ),
    ]


@pytest.mark.parametrize("seed_", range(6))
def test_a_validator_says_what_a_compile_does(seed_):
    chips = ("h13", "h14g", "h15", "h16g", "h17s", "h18g", "u1")
    for tensor, tag, params, bottoms in native_layers(np.random.default_rng(seed_)):
        compiled = af.compile_all(tensor, chips, route="direct")
        for chip in chips:
            verdict = validate_layer(tag, params, bottoms, chip)
            refused = compiled.refused.get(chip)
            assert verdict.accepted == (refused is None), (tag, params, bottoms, chip, str(verdict), str(refused))
            if refused is not None:
                first = refused.refusals[0].findings[0]
                assert (first.stage, first.string or first.message) == (verdict.stage, verdict.message)


def test_a_compile_quotes_the_filled_in_string():
    with pytest.raises(CompileError) as caught:
        af.compile(af.affine(af.input((1, 8, 32, 32)), np.zeros((1, 6)), 16, 16), target="m1", route="direct")
    assert caught.value.reject == "affine transform is not supported on this architecture"
    assert caught.value.refusals[0].findings[0].stage == "validator"
