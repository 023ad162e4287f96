"""Agreement of the gate with the published verdicts, and what happens to rows that make no sense."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from aneforge.chips import sources, store
from aneforge.errors import AneforgeError
from aneforge.study.agreement import Answer, evaluate, query_of, target_of_row, verdict

FACTS = Path(__file__).resolve().parents[2] / "shared" / "facts"
VERDICTS = FACTS / "silicon" / "verdicts_train.json"
SECOND = FACTS / "second" / "verdicts.json"
here = pytest.mark.skipif(
    not VERDICTS.is_file() or not SECOND.is_file(), reason="the published verdicts are not beside this checkout"
)
BENCH = Path(__file__).resolve().parents[1] / "bench" / "verdicts.py"
DESCRIBES = {
    "op", "op_class", "shapes", "const", "attrs", "dtype", "weights", "weights_info", "values",
    "chip", "target", "tier", "route", "os", "compile_host",
}  # fmt: skip
ROW = {
    "op": "conv",
    "op_class": "conv",
    "shapes": [[1, 8, 8, 64]],
    "const": {"weight": [8, 8, 1, 15]},
    "attrs": {"pad_type": "valid"},
    "dtype": "fp16",
    "chip": "M1",
    "target": "h13",
    "route": "conversion",
}


def measured(*paths):
    return [row for path in paths or (VERDICTS,) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


@pytest.fixture(scope="module")
def bench():
    """The script that leaves out sources."""
    spec = importlib.util.spec_from_file_location("verdicts_bench", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@here
def test_agreement_with_people_who_have_the_chips():
    result = evaluate(measured())
    assert result.rows > 900
    assert result.exact >= 0.99, result.misses
    assert result.runs >= 0.99
    assert result.runs_balanced >= 0.98
    assert result.boundary >= 0.97
    assert result.wrong_results >= 0.9


@here
def test_agreement_about_programs():
    """The second collection: whole programs, weight forms and runtimes."""
    result = evaluate(measured(SECOND))
    assert result.rows > 190
    assert result.exact >= 0.97, result.misses
    assert result.boundary >= 0.99
    assert result.wrong_results == 1.0


@here
def test_rows_whose_source_is_left_out(bench):
    """Nine in ten are still answered, and half of the wrong results are flagged: of new sources, and of all."""
    second = bench.rows_of(SECOND)
    for rows in (second, [*second, *bench.rows_of(VERDICTS)]):
        left = bench.leave_out(rows)
        assert left.rows == len(rows)
        assert left.right / left.rows >= 0.9, left.misses
        assert left.flagged / left.wrong_results >= 0.5, left.misses
    assert bench.leave_out(second, by_publisher=True).right / len(second) >= 0.9


@here
def test_leaving_a_source_out_forgets_what_only_it_states_and_nothing_else(bench):
    rows = measured(SECOND)
    swish = next(row for row in rows if row["op"] == "chain:linear_hardswish")
    block = next(row for row in rows if row["source"] == "MON" and row["verdict"] == "reject")
    before = [str(verdict(row)) for row in rows]
    with bench.forgotten(bench.keys_of("coreai-torch#51")) as count:
        assert count == 1
        assert verdict(swish) == "accept"
        assert verdict(block) == "reject"
    with bench.forgotten(bench.keys_of("MON")):  # blocks of scales on an M4 have other witnesses
        assert verdict(block) == "reject"
    with bench.forgotten(frozenset(("MON", "CAZ", "CAM.205"))):
        assert verdict(block) == "accept"
    assert [str(verdict(row)) for row in rows] == before


@here
def test_every_source_of_a_row_is_one_that_the_records_may_name(bench):
    """A source that goes by another name in the data would be left out in vain."""
    known = {*sources(), *store.load("gate_limits")["sources"]}
    listed = {key for keys in bench.KEYS.values() for key in keys}
    unlisted = {row["source"] for row in measured(VERDICTS, SECOND)} - set(bench.KEYS)
    assert listed - known == {"G11", "G14"}  # chapters that no record names
    assert {name for name in unlisted if name not in known and not name.startswith("timed:")} == UNNAMED


UNNAMED = {"rustane#13", "larql#312", "hollance#44"}
"""Sources of rows that no record names: nothing rests on them."""


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "cannot be read"), ("{", "not JSON"), ("[]", "no list 'rows'"), ('{"rows": [1]}', "no list 'rows'")],
)
def test_a_file_without_verdicts_is_one_line(bench, tmp_path, text, says):
    path = tmp_path / "verdicts.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=f"^{path}.*{says}") as error:
        bench.rows_of(path)
    assert "\n" not in str(error.value)


@here
def test_no_measured_field_is_read():
    for row in measured(VERDICTS, SECOND):
        described = {key: value for key, value in row.items() if key in DESCRIBES}
        assert verdict(described) == verdict(row), row["id"]


@here
def test_the_preferred_device_of_single_ops():
    rows = [row for row in measured() if row.get("placed") and row.get("group") != "timed"]
    right = sum(verdict(row).placed == row["placed"] for row in rows)
    assert right >= 0.97 * len(rows)


@here
def test_rows_of_low_confidence_count_only_when_asked_for():
    few = [row for row in measured() if row["confidence"] == "low"]
    assert evaluate(few).skipped == len(few)
    assert evaluate(few, low=True).rows == len(few)


def test_an_answer_is_a_word_with_reasons():
    answer = verdict(ROW)
    assert isinstance(answer, Answer)
    assert answer == "reject" == answer.verdict
    assert answer.findings[0].rule == "conv-kernel-width"
    assert "15" in answer.reason
    assert answer.placed is None
    assert verdict({**ROW, "const": {"weight": [8, 8, 1, 13]}}) == "accept"


def test_a_row_that_names_no_target():
    assert target_of_row({"chip": "M4"}).name == "h16g"
    assert target_of_row({"chip": "A12"}).name == "h11"
    assert target_of_row({"target": "h18g"}).name == "h18g"
    assert target_of_row({}).name == "h14"
    assert verdict({"op": "relu", "route": "conversion"}) == "accept"


def test_what_only_a_run_shows_is_not_held_against_a_compile():
    row = {"op": "mul", "shapes": [[1, 80, 1, 1]], "target": "h15", "route": "conversion"}
    assert verdict(row) == "wrong_result"
    assert verdict({**row, "compile_host": "M5"}) == "accept"


def test_an_integer_constant_is_not_an_affine_weight():
    """G04: a plain integer constant is refused on M1, an int8 weight with a scale is not."""
    row = {"op": "matmul", "shapes": [[8, 64]], "const": {"y": [64, 8]}, "chip": "M1", "route": "conversion"}
    info = {"weights_info": {"encoding": "int8"}}
    assert verdict({**row, **info, "weights": "integer constant"}) == "reject"
    assert verdict({**row, **info, "weights": "int8 affine"}) == "accept"


@pytest.mark.parametrize(
    ("op", "graph", "patterns"),
    [
        ("chain:concat", "concat of single columns sliced at 3, 1, 0 along the last axis", {"joined-width-slices"}),
        ("chain:concat", "concat of whole rows", set()),
        ("chain:reduce_sum", "reduce_sum axis 1, then mul by 0.0", {"reduction-times-zero"}),
        ("chain:reduce_sum", "reduce_sum axis 1, then sub(x, x)", set()),
        ("chain:round", "round, then mul by a scalar", {"round-then-scale"}),
        ("chain:round", "select(|x|<1024, round(x), x)", set()),
        ("chain:square", "square, then a nonlinearity", {"square-before-a-function"}),
        ("chain:ffn", "two convs, silu, mul, conv", {"gated-feed-forward"}),
        ("chain:mul", "quantise, dequantise, multiply, quantise", {"two-quantise-pairs-around-a-product"}),
        ("chain:mul", "quantise, dequantise, multiply", set()),
        ("chain:cast", "fp32 input, cast, conv, cast", {"cast-behind-an-fp32-input"}),
        ("chain:conv", None, set()),
        ("chain:head", "vocabulary conv, topk, cast", {"selection-behind-a-product"}),
        ("chain:block", "fused attention inside a full transformer block", {"fused-attention-among-other-layers"}),
        ("chain:classifier", "rank-2 linear, hard-swish", {"linear-before-hard-swish"}),
        ("chain:classifier", "rank-4 1x1 conv, hard-swish", set()),
        ("chain:isnan", "NaN input, isnan", {"test-for-nan"}),
    ],
)
def test_the_sentences_of_rows_become_patterns(op, graph, patterns):
    query = query_of({"op": op, "attrs": {"graph": graph, "repeat": 2}})
    assert query.patterns == patterns
    assert query.attrs == {"repeat": 2}


@pytest.mark.parametrize(
    ("row", "attrs", "weights"),
    [
        ({"op": "group_norm", "attrs": {"lowering": "flattened axis of 262144"}}, {"form": "flattened"}, {}),
        ({"op": "group_norm", "attrs": {"lowering": "rank-4 tiled"}}, {"form": "tiled"}, {}),
        ({"op": "layer_norm", "attrs": {"lowering": "rank-4 [R,D,1,1] body"}}, {"form": "rank-4"}, {}),
        ({"op": "layer_norm", "attrs": {"lowering": "affine as [1,D] after it"}}, {"form": "rank-2"}, {}),
        ({"op": "SDPA", "shapes": [[1, 8, 4, 4]], "attrs": {"mask": "per head"}}, {"mask_planes": 8}, {}),
        ({"op": "SDPA", "shapes": [[1, 8, 4, 4]], "attrs": {"mask": "shared"}}, {}, {}),
        ({"op": "linear", "weights": "4-bit palette, group 16"}, {}, {"palette_per_group": True}),
        ({"op": "conv", "weights": "palette of vectors along the input channel"}, {}, {"vectors_along": "input"}),
        ({"op": "chain:conv_stack", "attrs": {"program_mb": 2}}, {"weight_bytes": 2e6, "kind": "convolutions"}, {}),
        ({"op": "chain:chunk", "attrs": {"program_mb": 2}}, {"weight_bytes": 2e6, "kind": "layers"}, {}),
        ({"op": "chain:decode_9_layers", "attrs": {"repeat": 9}}, {"repeat": 9, "decode_layers": 9}, {}),
        ({"op": "chain:kv", "attrs": {"graph": "index_copy into a cache"}}, {"writes": "computed places"}, {}),
        ({"op": "chain:kv", "attrs": {"graph": "attention, scatter-free at rank 4"}}, {}, {}),
        ({"op": "split", "attrs": {"graph": "one section has length 0"}}, {"sections": (0,)}, {}),
    ],
)
def test_other_sentences_become_fields(row, attrs, weights):
    query = query_of(row)
    assert (query.attrs, query.weights) == (attrs, weights)


@pytest.mark.parametrize(
    ("row", "pattern", "shown"),
    [
        ({"attrs": {"graph": "convs, gelu, mul"}, "weights_info": {"encoding": "w8a8"}}, "two-quantise-pairs", True),
        ({"attrs": {"graph": "convs, gelu, mul"}, "weights_info": {"encoding": "lut4"}}, "two-quantise-pairs", False),
        ({"attrs": {"scale_b": 0.5, "scale_out": 0.25}}, "two-quantise-pairs", True),
        ({"attrs": {"scale_b": 0.5, "scale_out": 0.5}}, "two-quantise-pairs", False),
        ({"attrs": {"graph": "product clamped", "scale_b": 0.5, "scale_out": 0.25}}, "two-quantise-pairs", False),
        ({"attrs": {"graph": "fp32 divide, cast, conv"}, "weights_info": {"encoding": "lut4"}}, "fp32-before", True),
        ({"attrs": {"graph": "fp32 divide, cast, conv"}}, "fp32-before", False),
        ({"attrs": {"graph": "conv, fp32 divide"}, "weights_info": {"encoding": "lut4"}}, "fp32-before", False),
        ({"attrs": {"io": "fp32"}}, "cast-behind", True),
        ({"attrs": {"io": "fp32", "precision": "fp32"}}, "cast-behind", False),
        ({"op": "reduce_argmax", "attrs": {"axis": 1}}, "argmax-of-channels", True),
        ({"op": "reduce_argmax", "attrs": {"axis": 3}}, "argmax-of-channels", False),
    ],
)
def test_sentences_and_types_together_become_patterns(row, pattern, shown):
    query = query_of({"op": "chain:block", **row})
    assert any(name.startswith(pattern) for name in query.patterns) is shown


def test_the_runtime_of_a_row_is_in_its_system():
    assert query_of({"op": "relu", "os": "macOS 27, Core AI"}).runtime == "coreai"
    assert query_of({"op": "relu", "os": "macOS 27.0 (26A428)"}).runtime == "direct"
    assert query_of({"op": "relu"}).runtime_of("coreml_placement") == "coreml"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"op": None}, "op"),
        ({"op": 7}, "op"),
        ({"op": ""}, "op"),
        ({"shapes": "1x8"}, "shapes"),
        ({"shapes": [8]}, r"shapes\[0\]"),
        ({"shapes": [[1, -8]]}, r"shapes\[0\]"),
        ({"shapes": [[1, 2.5]]}, r"shapes\[0\]"),
        ({"const": [1]}, "const"),
        ({"const": {"weight": 3}}, "const.weight"),
        ({"attrs": "same"}, "attrs"),
        ({"values": 3}, "values"),
        ({"weights_info": "int8"}, "weights_info"),
        ({"dtype": 16}, "dtype"),
        ({"route": "sideways"}, "route"),
        ({"route": 3}, "route"),
        ({"attrs": {"groups": "eight"}}, "attrs"),
        ({"attrs": {"strides": [[1], [2]]}}, "attrs"),
        ({"attrs": {"pad": "wide"}}, "attrs"),
        ({"target": "h99", "chip": None}, "target"),
        ({"target": None, "chip": "M99"}, "chip"),
    ],
)
def test_a_malformed_row_is_one_error_that_names_the_field(change, names):
    with pytest.raises(AneforgeError, match=f"^{names}") as error:
        verdict({**ROW, **change})
    assert "\n" not in str(error.value)


def test_a_malformed_file_is_an_error_too():
    with pytest.raises(AneforgeError, match=r"^row"):
        verdict([1])  # type: ignore[arg-type]
    with pytest.raises(AneforgeError, match=r"^verdict"):
        evaluate([{**ROW, "verdict": "maybe"}])
    with pytest.raises(AneforgeError, match=r"^verdict"):
        evaluate([ROW])


def test_agreement_prints_and_serialises():
    rows = [
        {**ROW, "verdict": "reject", "group": "kw", "confidence": "high", "id": "a"},
        {**ROW, "const": {"weight": [8, 8, 1, 13]}, "verdict": "accept", "group": "kw", "id": "b"},
        {**ROW, "const": {"weight": [8, 8, 1, 12]}, "verdict": "reject", "group": "kw", "id": "c"},
    ]
    result = evaluate(rows)
    assert (result.rows, result.boundary_pairs) == (3, 2)
    assert result.exact == pytest.approx(2 / 3)
    assert result.boundary == pytest.approx(1 / 2)
    assert result.misses[0]["id"] == "c"
    assert json.loads(json.dumps(result.to_json()))["parts"]["chip"]["M1"] == {"exact": 2, "rows": 3}
    assert "exact" in str(result)
    assert evaluate([]).exact == 1.0
