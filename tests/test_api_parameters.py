"""No parameter is accepted and ignored: for each one that has a default, another value changes the result or raises.

The table holds every parameter of the public functions. A new parameter fails here until somebody shows that it
does something.
"""

from __future__ import annotations

import inspect
import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aneforge as af
from aneforge import _compile
from aneforge.compiler import validate as validation
from aneforge.errors import AneforgeError

pytestmark = [
    pytest.mark.filterwarnings("ignore::aneforge.chips.host.TargetDetectionWarning"),
    pytest.mark.filterwarnings("ignore::aneforge.errors.PrecisionWarning"),
]
ENCODER = str(Path(__file__).resolve().parents[1] / "examples" / "tiny_encoder.onnx")


class Row(NamedTuple):
    """A function, the arguments of a call, and another value for each parameter that has a default."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    others: dict[str, Any]


def x(*shape: int) -> af.Tensor:
    return af.input(shape or (1, 8, 4, 4), name="x")


def y(*shape: int) -> af.Tensor:
    return af.input(shape or (1, 8, 4, 4), name="y")


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape)


# Ops: another value gives another graph, or an error.

SQUARE, BIAS = ones(16, 16), ones(16)
CONV = {"stride": 2, "pad": 1, "dilation": 2, "groups": 2}
OPS = [
    Row(af.input, ((2, 3),), {"dtype": "bool", "max_abs": 4.0, "name": "other"}),
    Row(af.image_input, ((1, 4, 4, 4),), {"scale": 0.5, "bias": 1.0, "name": "other", "format": "&BGA"}),
    Row(af.parameter, (ones(3, 2),), {"name": "other", "kernel": (3, 2)}),
    Row(af.const, (ones(3),), {"name": "other"}),
    Row(af.cast, (x() > 0.0,), {"dtype": "int32"}),
    Row(af.conv, (x(1, 4, 8, 8), ones(4, 4, 3, 3)), {**CONV, "bias": ones(4)}),
    Row(af.conv_transpose, (x(1, 4, 8, 8), ones(4, 4, 3, 3)), {**CONV, "bias": ones(4)}),
    Row(af.dynamic_conv, (x(1, 4, 8, 8), y(4, 4, 3, 3)), CONV),
    Row(af.conv2d, (x(1, 4, 8, 8), af.conv_param(ones(4, 4, 3, 3))), {"stride": 2, "pad": 1, "windows": "kernel"}),
    Row(af.conv_param, (ones(4, 4, 3, 3),), {"name": "other"}),
    Row(af.conv3d, (x(1, 4, 8, 8, 8), ones(4, 4, 3, 3, 3)), {**CONV, "bias": ones(4)}),
    Row(af.linear, (x(2, 8), ones(4, 8)), {"bias": ones(4)}),
    Row(af.batch_norm, (x(), *(ones(8) for _ in range(4))), {"eps": 0.5}),
    Row(af.instance_norm, (x(), ones(8), ones(8)), {"eps": 0.5}),
    Row(af.group_norm_train, (x(), *(af.parameter(ones(1, 8, 1, 1)) for _ in range(2)), 2), {"eps": 0.5}),
    Row(af.local_response_norm, (x(),), {"size": 3, "alpha": 0.5, "beta": 0.5, "k": 2.0}),
    Row(af.lrn, (x(),), {"alpha": 0.5, "beta": 0.5, "k": 2.0, "channels": 3}),
    Row(af.minmax_norm, (x(),), {"dimension": "Height", "eps": 0.5}),
    Row(af.concat, ([x(), y()],), {"axis": 2}),
    Row(af.stack, ([x(), y()],), {"axis": 1}),
    Row(af.split, (x(4, 4), 2), {"axis": 1}),
    Row(af.gather, (x(4, 4), [0, 1]), {"axis": 1}),
    Row(af.pad, (x(), [(0, 0), (0, 0), (1, 1), (1, 1)]), {"mode": "reflect", "value": 1.0}),
    Row(af.space_to_depth, (x(),), {"block_size": 4}),
    Row(af.depth_to_space, (x(1, 16, 4, 4),), {"block_size": 4}),
    Row(af.resize_bilinear, (x(), 8, 8), {"align_corners": True}),
    Row(af.upsample_bilinear, (x(),), {"scale": 3, "align_corners": True}),
    Row(af.affine, (x(), [[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]], 4, 4), {"align_corners": True}),
    Row(af.resample, (x(), y(1, 2, 2, 2)),
        {"sampling_mode": "nearest", "padding_value": 1.0, "coordinates_mode": "unnormalized", "align_corners": True}),
    Row(af.crop_resize, (x(), y(2, 4), 3, 3),
        {"normalized_coordinates": True, "box_coordinate_mode": "CORNERS_WIDTH_FIRST",
         "sampling_mode": "ALIGN_CORNERS", "pad_value": 1.0}),
    Row(af.mha, (x(4, 16), *[SQUARE, BIAS] * 4, 2), {"mask": ones(4, 4)}),
    Row(af.cross_attention, (x(4, 16), y(4, 16), *[SQUARE] * 4, 2),
        {"bq": BIAS, "bk": BIAS, "bv": BIAS, "bo": BIAS}),
    Row(af.sdpa, (x(1, 2, 4, 8), y(1, 2, 4, 8), y(1, 2, 4, 8)),
        {"scale": 0.5, "is_causal": True, "attn_mask": ones(1, 1, 4, 4)}),
    Row(af.conv_block,
        (x(1, 4, 8, 8), af.conv_param(ones(4, 4, 3, 3)), *(af.parameter(ones(1, 4, 1, 1)) for _ in range(2)), 2),
        {"pool": 2, "windows": "kernel"}),
    Row(af.topk, (x(4, 16), 4), {"largest": False}),
    Row(af.sort, (x(4, 16),), {"descending": True, "return_indices": True}),
    Row(af.cost_volume, (x(4), y(6)), {"disparity_range": 2}),
    Row(af.dynamic_slice, (x(1, 8, 4, 8), 1), {"size": 3}),
    Row(af.cross_correlation, (x(1, 4, 8, 8), ones(1, 4, 3, 3)), {"pad": 1, "groups": 2}),
    Row(af.input_view, (x(1, 8, 4, 8), 1, 3), {"step": 2, "axis": 1}),
    Row(af.ring_write, (x(4, 2), af.live_state((4, 8), "cache")), {"offset": 5}),
    Row(af.bridge, ("Flatten", [x()]), {"name": "line"}),
    Row(af.scaled_elementwise, (x(), y()), {"op": "Mult", "scale": 2.0}),
    Row(af.quantize, (x(), 0.5), {"zero_point": 1, "dtype": "uint8"}),
    Row(af.dequantize, (af.quantize(x(), 0.5), 0.5), {"zero_point": 1}),
    Row(af.dropout, (x(),), {"rate": 0.25, "seed": 1}),
    Row(af.one_hot, (x(4), 3), {"on": 2.0, "off": 1.0}),
    Row(af.random_normal, ((2, 3),), {"mean": 1.0, "std": 2.0, "seed": 1}),
    Row(af.random_uniform, ((2, 3),), {"low": 0.5, "high": 2.0, "seed": 1}),
    Row(af.reverse_sequence, (x(4, 4, 4), [1, 2, 3, 4]), {"seq_axis": 2, "batch_axis": 2}),
    Row(af.scatter, (x(4, 4), [0, 1], ones(2, 4)), {"axis": 1, "mode": "add"}),
    Row(af.rnn, (x(3, 1, 4), ones(4, 4), ones(4, 4), ones(4)), {"h0": ones(1, 4)}),
    Row(af.gru, (x(3, 1, 4), ones(12, 4), ones(12, 4), ones(12)), {"h0": ones(1, 4)}),
    Row(af.lstm, (x(3, 1, 4), ones(16, 4), ones(16, 4), ones(16)), {"h0": ones(1, 4), "c0": ones(1, 4)}),
    Row(af.reduce_sum_to_matmul, (x(2, 8).sum(1) + x(2, 8).sum(1),), {"only_idx": [0]}),
]  # fmt: skip


def graph_text(out: Any) -> str:
    return json.dumps(af.Graph.of(out).to_json(), sort_keys=True, default=str)


def cases(rows: list[Row]) -> list[Any]:
    return [pytest.param(row, name, id=f"{row.function.__name__}-{name}") for row in rows for name in row.others]


@pytest.mark.parametrize(("row", "name"), cases(OPS))
def test_every_parameter_of_an_op_changes_the_graph(row, name):
    plain = graph_text(row.function(*row.arguments))
    try:
        other = graph_text(row.function(*row.arguments, **{name: row.others[name]}))
    except AneforgeError:
        return
    assert other != plain


# Functions that answer questions.


def slow() -> af.Tensor:
    """Two products that a search can compress, and a slice in which chips differ."""
    rng = np.random.default_rng(0)
    data = af.input((1, 256), name="x", max_abs=8)
    return data.linear(rng.normal(size=(512, 256)) / 16).relu().linear(rng.normal(size=(64, 512)) / 16).named("y")


def cut() -> af.Tensor:
    return af.input((1, 8, 4, 8), name="x")[:, :, :, 3:].relu().named("y")


def shown(result: Any) -> str:
    """All that a caller can see of a result."""
    if isinstance(result, tuple):
        return " ".join(map(shown, result))
    if isinstance(result, af.Model):
        return json.dumps([result.to_json(), result.mode, type(result).__name__], default=list)
    if hasattr(result, "svg"):
        return str(result.svg)
    if hasattr(result, "to_json"):
        return f"{result} {json.dumps(result.to_json(), default=list)} {getattr(result, 'ok', None)}"
    return repr(result)


def observed(function: Callable[..., Any], arguments: tuple[Any, ...], settings: dict[str, Any], capsys: Any) -> str:
    """The result, what was printed and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = shown(function(*arguments, **settings))
    printed = capsys.readouterr()
    return f"{result}\n{printed.out}{printed.err}{sorted({str(each.message) for each in caught})}"


def unbounded():
    """A layer with an infinite weight, which fp16 holds and no stored form does."""
    return af.input((1, 4)).linear(np.full((4, 4), np.inf, np.float16))


NO_FILE = {"dims": {"batch": 2}, "function": "main"}
COMPILE = {
    "int8": True,
    "opt": 0,
    "compress": "int8",
    "compress_atol": 0.1,
    "block_size": 16,
    "target": "m5",
    "mode": "fast",
    "route": "direct",
}
INPUTS = {"x": np.full((1, 8, 4, 8), 2.0)}
LARGE = {"x": np.full((1, 8, 4, 8), 5000.0)}
QUESTIONS = [
    Row(af.compile, (slow(),), {**COMPILE, **NO_FILE}),
    Row(af.compile_multi, ([slow()],), COMPILE),
    Row(af.compile_all, (slow(),), {"target": "m1,m5", "route": "direct", **NO_FILE}),
    Row(af.estimate, (slow(),), {"int8": True, "target": "m1", "scope": "host_call", **NO_FILE}),
    Row(af.estimate_all, (slow(),), {"target": "m1", "scope": "host_call", "vendor": True, "changes": 0, **NO_FILE}),
    Row(af.precision_risk, (cut(),), {"verbose": True, "target": "m5", "ranges": 4.0, **NO_FILE}),
    Row(af.preflight, (cut(), "h12"), {"route": "direct"}),
    Row(af.preflight_all, (cut(),), {"target": "m1", "route": "direct"}),
    Row(af.check, (cut(),), {"target": "m1", "route": "direct", "fail_on": "none", **NO_FILE}),
    Row(af.partition, (cut(),), {"target": "m5", "by": "placement", **NO_FILE}),
    Row(af.risks, (cut(),), {"target": "m5", "max_abs": 4.0, "inputs": INPUTS, "ranges": 4.0, **NO_FILE}),
    Row(af.diverges, (cut(),), {"target": "m1,m6", "max_abs": 4.0, "inputs": INPUTS, "ranges": 4.0, **NO_FILE}),
    Row(
        af.compare,
        (cut(), "m1,m5", LARGE),
        {"mode": "fast", "reference": "m5", "seed": 1, "samples": 2, "fail_above": 0.0, **NO_FILE},
    ),
    Row(af.compare, (cut(),), {"target": "m1,m6", "inputs": INPUTS, "seed": 1, "samples": 3}),
    Row(
        af.run,
        (cut(),),
        {"target": "m5", "inputs": INPUTS, "mode": "quick", "trace": True, "batch": True, "seed": 1, **NO_FILE},
    ),
    Row(af.probe, (), {"target": "h12"}),
    Row(
        af.tune,
        (slow(),),
        {
            **{"budget": 0, "inputs": {"z": ones(1)}, "prune_factor": 0.5, "reps": 5, "atol": -1.0},
            **{"min_lossy_speedup": 0.5, "verbose": True, "target_error": -1.0, "target": "m5", **NO_FILE},
        },
    ),
    Row(
        af.tune_precision,
        (slow(),),
        {
            **{"target_error": -1.0, "cost_budget_us": 1e-9, "inputs": {"z": ones(1)}, "reps": 5},
            **{"verbose": True, "target": "m5", **NO_FILE},
        },
    ),
    Row(af.plot, (slow(),), {"kind": "timeline", "target": "m2", "scope": "device_task", **NO_FILE}),
    Row(af.report, (slow(), "m1"), {"scope": "device_task", "changes": 0, "max_abs": 9.0, **NO_FILE}),
    Row(af.report, (slow(),), {"target": "m2"}),
    Row(af.tune_attention, (64, 2, 16), {"T": 0, "candidates": (), "target": "m55"}),
    Row(af.attention_tiles, (512, 8, 64), {"T": 16, "tune": True, "candidates": (1, 2), "target": "m55"}),
    Row(
        af.predict_fp16_divergence,
        ("slice_by_size", (1, 64), "h13", "h17s", (0, 1)),
        {"max_abs": 1.0, "basis": "guess"},
    ),
    Row(af.predict_fp16_divergence, ("slice_by_size", (1, 64), "h13", "h17s"), {"begin": (0, 1)}),
    Row(af.fidelity, ("gelu",), {"target": "m55"}),
    Row(af.device_status, ("sin",), {"chip": "m3"}),
    Row(af.is_native, ("sin",), {"chip": "m3"}),
    Row(af.ops_on, (), {"chip": "m3", "status": "reject"}),
    Row(
        af.validate_layer,
        ("Conv", {"Type": "Conv", "KernelWidth": 3, "KernelHeight": 3}, [(1, 8, 16, 16)], "m5"),
        {
            "route": "conversion",
            "fields": {"NumGroups": 3},
            "dtypes": ["fp16", "fp16"],
            "kernel": {"encoding": "sparse", "bits": 4},
        },
    ),
    Row(af.validate_network, (x().relu(), "m1"), {"route": "conversion", "bonded": True}),
    Row(af.load, (ENCODER, {"batch": 1}), {"fixed": {"nothing": 1}, "function": "main"}),
    Row(af.load, (ENCODER,), {"dims": {"batch": 1}}),
    Row(_compile.cross_compile_check, (slow(), "h12"), {"route": "direct"}),
    Row(_compile.cross_compile_check, (unbounded(), "h13"), {"int8": True}),  # such a weight cannot be encoded
]
GRADCHECK = "target inputs params loss loss_scale samples seed tolerance dims function progress"
SPLIT = "target context weights runtime os dims function progress"
STEPS = "target steps inputs mode seed dims function progress"
EVALUATION = (
    "target metric reference mode samples labels preprocess compress calibration out shard strict explain device dims "
    "function progress"
)
PARITY = "target logits test seed progress options"
ELSEWHERE = {
    # A system or a runtime that is not known is refused, and both change verdicts: tests/test_systems.py.
    ("check", "os"): "tests/test_systems.py",
    ("check", "runtime"): "tests/test_systems.py",
    ("check", "max_abs"): "tests/test_outcomes.py",
    ("partition", "os"): "tests/test_systems.py",
    ("partition", "runtime"): "tests/test_systems.py",
    ("estimate_all", "os"): "tests/test_systems.py",
    ("estimate_all", "runtime"): "tests/test_systems.py",
    ("estimate_all", "machine"): "tests/test_cost_errata.py",
    ("estimate_all", "copy_gbs"): "tests/test_cost_errata.py",
    **{("evaluate_model", name): "tests/test_evaluate.py" for name in EVALUATION.split()},
    ("evaluate", "single"): "tests/test_evaluate.py",
    ("compile", "build_dir"): "test_files_are_written",
    ("compile", "validate"): "test_validation_runs",
    ("compile", "_check_precision"): "test_precision_is_checked",
    ("compile_multi", "build_dir"): "test_files_are_written",
    ("compile_multi", "validate"): "test_validation_runs",
    ("compile_multi", "_check_precision"): "test_precision_is_checked",
    **{(name, "progress"): "test_progress_is_heard" for name in ("run", "compare", "diverges", "report")},
    ("report", "measured"): "tests/test_compute_plan.py",
    ("report", "accuracy"): "tests/test_evaluate.py",
    ("probe", "progress"): "test_probes_tell_their_progress",
    ("const", "what"): "test_a_constant_is_named_in_its_error",
    ("evaluate", "feeds"): "test_feeds_are_read",
    ("backward", "loss_scale"): "tests/test_train.py",
    ("backward", "stop"): "tests/test_train.py",
    ("backward_from", "stop"): "tests/test_train.py",
    **{("gradcheck", name): "tests/test_gradcheck.py" for name in GRADCHECK.split()},
    **{("compare_training", name): "tests/test_train_parity.py" for name in PARITY.split()},
    **{("split_model", name): "tests/test_split.py" for name in SPLIT.split()},
    **{("decode_steps", name): "tests/test_caches.py" for name in STEPS.split()},
    **{("load_split", name): "tests/test_split.py" for name in ("target", "mode")},
    ("export_coreml", "target"): "tests/test_export_coreml.py",
    ("export_coreml", "overwrite"): "tests/test_export_coreml.py",
    ("export_coreml", "dims"): "graph_of, as in every function",
    ("export_coreml", "function"): "graph_of, as in every function",
    ("save_netplist", "binary"): "tests/test_netplist_writer.py",
    ("save_netplist", "target"): "tests/test_netplist_writer.py",
    ("save_netplist", "overwrite"): "tests/test_netplist_writer.py",
    ("save_netplist", "interleave"): "tests/test_netplist_writer.py",
    ("save_netplist", "dims"): "graph_of, as in every function",
    ("save_netplist", "function"): "graph_of, as in every function",
    ("load_onnx", "dims"): "tests/test_onnx.py",
    ("load_onnx", "fixed"): "tests/test_onnx.py",
    ("load_onnx", "target"): "tests/test_onnx.py",
    ("load_program", "mode"): "tests/test_archive.py",
    ("onnx_to_tensor", "dims"): "tests/test_onnx.py",
    ("onnx_to_tensor", "fixed"): "tests/test_onnx.py",
    ("onnx_to_tensor", "folder"): "tests/test_onnx.py",
}
"""Parameters whose effect is not in the result, or is tested where the format is."""


@pytest.mark.parametrize(("row", "name"), cases(QUESTIONS))
def test_every_parameter_of_a_function_changes_the_result_or_is_refused(row, name, capsys):
    try:
        other = observed(row.function, row.arguments, {name: row.others[name]}, capsys)
    except AneforgeError:
        return
    try:
        plain = observed(row.function, row.arguments, {}, capsys)
    except AneforgeError:
        return
    assert other != plain


def test_the_tables_hold_every_parameter_that_has_a_default():
    shown_here = {(row.function.__name__, name) for row in itertools.chain(OPS, QUESTIONS) for name in row.others}
    wanted = set()
    for name in af.__all__:
        function = getattr(af, name)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            wanted |= {(name, each.name) for each in parameters if each.default is not each.empty}
    assert wanted - shown_here == set(ELSEWHERE)
    assert shown_here - wanted == {("cross_compile_check", "int8"), ("cross_compile_check", "route")}


@pytest.mark.parametrize("function", [af.compile, lambda out, **rest: af.compile_multi([out], **rest)])
def test_files_are_written(function, tmp_path):
    function(slow(), target="m1", build_dir=tmp_path / "built")
    names = {file.name for file in (tmp_path / "built").iterdir()}
    assert names >= {"program.txt", "program.json", "program.mlir"}
    assert names & {"model.mil", "model.mil.txt"}


@pytest.mark.parametrize("function", [af.compile, lambda out, **rest: af.compile_multi([out], **rest)])
def test_validation_runs(function, monkeypatch):
    class ToldError(Exception):
        pass

    def raise_told(*_: Any) -> None:
        raise ToldError

    monkeypatch.setattr(validation.Validator, "__init__", raise_told)
    function(slow(), target="m1")
    with pytest.raises(ToldError):
        function(slow(), target="m1", validate=True)


@pytest.mark.parametrize("function", [af.compile, lambda out, **rest: af.compile_multi([out], **rest)])
def test_precision_is_checked(function):
    total = af.input((1, 4096), name="x").sum(1)
    with pytest.warns(af.PrecisionWarning, match="65504"):
        function(total, target="m1")
    with warnings.catch_warnings():
        warnings.simplefilter("error", af.PrecisionWarning)
        function(total, target="m1", _check_precision=False)


def test_progress_is_heard():
    heard: list[tuple[int, int, str]] = []

    def hear(*step: Any) -> None:
        heard.append(step)

    af.run(cut(), "m1", {"x": np.zeros((3, 1, 8, 4, 8))}, batch=True, progress=hear)
    assert heard == [(1, 3, "samples"), (2, 3, "samples"), (3, 3, "samples")]
    heard.clear()
    af.compare(x().relu(), "m1,m5", progress=hear)
    assert heard[0][:2] == (0, 0)
    assert [step[:2] for step in heard[1:]] == [(number, len(heard) - 1) for number in range(len(heard) - 1)]
    heard.clear()
    af.diverges(x().relu(), "m1,m2,m5", progress=hear)
    assert heard == [(0, 2, "comparing m2 with m1"), (1, 2, "comparing m5 with m1")]
    heard.clear()
    af.gradcheck((x() * af.parameter(ones(1, 8, 4, 4), name="w")).mean(), "m1,m5", samples=1, progress=hear)
    assert heard == [(0, 3, "moving numbers of w"), (1, 3, "gradients on m1"), (2, 3, "gradients on m5")]
    heard.clear()
    af.report(x().relu(), "m1", changes=0, progress=hear)
    assert heard
    assert [step[0] for step in heard] == sorted(step[0] for step in heard)
    assert {step[1] for step in heard} == {heard[-1][1]}


def test_probes_tell_their_progress(monkeypatch):
    monkeypatch.setattr("aneforge.study.probes.readings", lambda chip: [])  # seconds a chip
    heard: list[tuple[int, int, str]] = []
    af.probe("m1,m5", progress=lambda *step: heard.append(step))
    assert heard == [(0, 2, "probing m1"), (1, 2, "probing m5")]


def test_a_constant_is_named_in_its_error():
    with pytest.raises(AneforgeError, match="table"):
        af.const("words", what="table")


def test_feeds_are_read():
    out = x(2, 3).relu()
    assert af.evaluate(out, [ones(2, 3)]).sum() == 6
    with pytest.raises(AneforgeError):
        af.evaluate(out)
