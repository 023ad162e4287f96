"""What each chip does with a graph: the seed page's statements, each with its verdict."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aneforge as af
from aneforge import _targets as tg
from aneforge.chips import Family, all_targets
from aneforge.errors import AneforgeError

SILICON = [each.name for each in all_targets(only_28=True) if each.family5 and each.family5 >= Family.A13]
CHIPS = ["m1", "m2", "m3", "m4"]


def image(shape=(1, 8, 32, 32), **options):
    return af.input(shape, **options)


def weight(*shape):
    return np.random.default_rng(0).normal(0, 0.1, shape)


def test_the_seed_example_runs_as_written():
    W = weight(16, 3, 3, 3)  # noqa: N806 - the seed's name
    x = af.input((1, 3, 32, 32))
    y = af.conv(x, W, pad=1).relu()
    rep = tg.preflight(y, tg.Family.A13)
    assert (rep.ok, [r.op for r in rep.reject], [r.op for r in rep.oversize]) == (True, [], [])
    assert [r.op for r in rep.native] == ["conv", "relu"]
    assert rep.family == tg.Family.A13


@pytest.mark.parametrize("name", [2, Family.A13, "h13", "M1", "T8103"])
def test_a_chip_is_named_in_any_way(name):
    assert af.preflight(image().relu(), name).target.name == "h13"


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: x.sin(), ["decompose", "decompose", "native", "native"]),
        (lambda x: x.cos(), ["decompose", "decompose", "native", "native"]),
        (lambda x: x.softmax(), ["native"] * 4),
        (lambda x: x.erf(), ["native"] * 4),
        (lambda x: x.tan(), ["decompose"] * 4),
        (lambda x: x.cumsum(), ["decompose"] * 4),
        (lambda x: af.dropout(x, 0.5), ["decompose", "decompose", "native", "native"]),
        (lambda x: af.affine(x, np.zeros((1, 6)), 16, 16), ["reject", "native", "native", "native"]),
        (lambda x: af.topk(x.reshape(8, 1024), 5), ["reject", "native", "native", "native"]),
        (lambda x: af.sort(x.reshape(8, 1024)), ["reject", "native", "native", "native"]),
        (af.upsample_bilinear, ["decompose", "native", "native", "native"]),
        (lambda x: af.gather(x, [0, 3], axis=1), None),
    ],
)
def test_statuses_of_the_seed_page(build, expected):
    node = build(image())
    for chip, status in zip(CHIPS, expected or ["native"] * 4, strict=True):
        report = af.preflight(node, chip)
        told = {
            entry.op: entry.status for group in (report.native, report.decompose, report.reject) for entry in group
        }
        if expected is not None:
            assert told[node.op] == status, (chip, told)
        assert report.ok == ("reject" not in told.values())


@pytest.mark.parametrize(
    ("make", "extent", "fails"),
    [
        (lambda n: af.input((1, 1, 1, n)).relu(), 16384, []),
        (lambda n: af.input((1, 1, 1, n)).relu(), 16385, ["m1", "m2", "m3"]),
        (lambda n: af.input((1, 1, 1, n)).relu(), 65536, ["m1", "m2", "m3"]),
        (lambda n: af.input((1, 1, 1, n)).relu(), 65537, ["m1", "m2", "m3", "m4"]),
        (lambda n: af.input((1, n, 1, 1)).relu(), 65536, []),
        (lambda n: af.input((1, n, 1, 1)).relu(), 65537, ["m1", "m2", "m3", "m4"]),
    ],
)
def test_extent_caps_by_axis(make, extent, fails):
    for chip in CHIPS:
        report = af.preflight(make(extent), chip)
        assert report.ok == (chip not in fails), (chip, extent)
        if chip in fails:
            entry = report.oversize[0]
            assert entry.oversize
            assert entry.extent == extent
            assert entry.limit < extent
            assert entry.hint


@pytest.mark.parametrize(("width", "fails"), [(13, []), (14, ["m1", "m2", "m3"]), (16, ["m1", "m2", "m3", "m4"])])
def test_kernel_width(width, fails):
    """A kernel beyond the chip's cap is rewritten (C16)."""
    y = af.conv(image((1, 8, 4, 64)), weight(8, 8, 1, width))
    assert all(af.preflight(y, chip).ok for chip in CHIPS)
    assert [chip for chip in CHIPS if af.preflight(y, chip).decompose] == fails


def test_a_rewrite_must_fit_the_chip_too():
    assert af.preflight(af.input((4, 4096)).cumsum(), "m1").ok
    wide = af.preflight(af.input((4, 20000)).cumsum(), "m1")
    assert not wide.ok
    assert wide.oversize[0].limit == 16384
    assert "cumsum" in wide.oversize[0].message


def test_the_slice_hazard_is_a_warning_with_the_exact_threshold():
    for shape, begin in (((1, 8, 32, 31), (0, 0, 0, 1)), ((1, 8, 31, 32), (0, 0, 1, 0))):
        y = image().slice_by_size(begin, shape)
        risky = begin[3] > 0
        for chip, clamps in (("m1", True), ("M2 Pro", True), ("m3", False), ("m5", False)):
            report = af.preflight(y, chip)
            assert report.ok
            assert [entry.rule for entry in report.risk] == (["slice-saturation"] if risky and clamps else [])
    safe = image(max_abs=4094).transpose([0, 2, 3, 1])[..., 1:]
    assert not af.preflight(safe, "m1").risk
    unsafe = image(max_abs=4095)[..., 1:]
    assert af.preflight(unsafe, "m1").risk[0].limit == 4094


def test_a_trained_layer_norm_on_the_m1_reads_the_weights():
    rng = np.random.default_rng(13)
    x = af.input((256, 4096))
    uniform = x.layer_norm(np.ones(4096), np.zeros(4096))
    trained = x.layer_norm(1 + 0.1 * rng.normal(size=4096), 0.1 * rng.normal(size=4096))
    assert af.preflight(uniform, "m1").ok
    assert not af.preflight(trained, "M1 Max").ok
    assert af.preflight(trained, "m5").ok


def test_both_routes_are_reported():
    entry = af.preflight(image().sin(), "m1").decompose[0]
    assert (entry.route, entry.other_route) == ("conversion", "direct: reject")


def test_reports_name_the_users_node_and_line():
    y = image().sin().named("wave")
    entry = af.preflight(y, "m1").decompose[0]
    assert entry.name == "wave"
    assert entry.where.startswith("test_preflight.py:")
    assert "wave" in str(entry)
    assert json.loads(json.dumps(entry.to_json()))["name"] == "wave"


def test_below_the_floor_nothing_runs():
    report = af.preflight(image().relu(), "h11")
    assert not report.ok
    assert "H13+" in report.reject[0].message


def test_all_targets_at_once_equal_one_by_one():
    y = af.conv(image(), weight(8, 8, 3, 3), pad=1).sin()[..., 1:]
    results = af.preflight_all(y)
    assert len(results) == 28
    for name, result in results.items():
        alone = af.preflight(y, name)
        assert result.counts == alone.counts
        assert result.ok == alone.ok
    assert set(af.preflight_all(y, ["m1", "M5 Pro"])) == {"m1", "M5 Pro"}


@pytest.mark.parametrize("bad", [None, 3, "x", [], [1], object()])
def test_foreign_objects_are_refused(bad):
    with pytest.raises(AneforgeError):
        af.preflight(bad, "m1")


def test_a_graph_without_inputs_is_refused():
    with pytest.raises(AneforgeError, match="no inputs"):
        af.preflight(af.const([1.0]) + 1.0, "m1")


POOL = [
    lambda x: x.relu(),
    lambda x: x.softmax(),
    lambda x: x.sin(),
    lambda x: x * 2.0 + 1.0,
    lambda x: x.exp().log(1.0),
    lambda x: af.upsample_bilinear(x) if x.shape[2] < 64 else x.avg_pool(2),
    lambda x: x.mean((2, 3)) + x,
    lambda x: x.transpose([0, 1, 3, 2]),
    lambda x: af.conv(x, weight(x.shape[1], x.shape[1], 3, 3), pad=1),
    lambda x: x.group_norm(np.ones(x.shape[1]), np.zeros(x.shape[1]), 2),
    lambda x: af.concat([x, x], axis=2)[:, :, ::2],
    lambda x: af.affine(x, np.zeros((1, 6)), 8, 8),
    lambda x: x.cumsum(2).tan(),
]


@settings(max_examples=60)
@given(st.lists(st.integers(0, len(POOL) - 1), min_size=1, max_size=6))
def test_what_the_m1_accepts_every_later_chip_accepts(steps):
    y = image((1, 4, 16, 16))
    for step in steps:
        y = POOL[step](y)
    rank = {"reject": 0, "oversize": 0, "decompose": 1, "risk": 2, "native": 2}
    ranks = []
    for chip in CHIPS:
        report = af.preflight(y, chip)
        ranks.append((report.ok, min(rank[report.worst()], 1) if report.ok else 0))
    assert ranks == sorted(ranks)


def test_the_catalogue():
    assert af.is_native("softmax", "m1")
    assert not af.is_native("sin", "m1")
    assert af.is_native("sin", "M3")
    assert af.min_native_family("sin") == 4
    assert af.min_native_family("affine") == 3
    assert af.min_native_family("tan") is None
    assert "tan" in af.walled_everywhere()
    assert "conv" not in af.walled_everywhere()
    assert {"topk", "affine"} <= set(af.ops_on("m2")) - set(af.ops_on("m1"))
    assert "cross_product" in af.ops_on("m1", "bridge")
    info = af.op_info("sin")
    assert info["status"]["A13"]["value"] == "decompose"
    assert info["published"]["A13"]["value"] == "gated"
    assert info["backend"]["floor"]["value"] == 4
    assert af.ops_on("h11") == []
    for call in (lambda: af.op_info("convv"), lambda: af.is_native("conv", "zzz"), lambda: af.ops_on("m1", "maybe")):
        with pytest.raises(AneforgeError):
            call()


def test_a_result_that_only_the_caller_reads_is_judged_too():
    x = af.input((1, 16384), name="x")
    wide = x.tile([1, 2]).named("wide")
    report = af.preflight(wide, "M1")
    assert not report.ok
    assert [(entry.name, entry.extent, entry.limit) for entry in report.oversize] == [("wide", 32768, 16384)]
    assert not report.reject
    assert af.preflight(wide, "M4").ok
    joined = af.concat([x, x], axis=1)
    assert not af.preflight(joined, "M1").ok
    with pytest.raises(af.CompileError, match="32768"):
        af.compile(joined, target="M1")
    assert (
        af.preflight(af.input((20000, 2)).transpose([1, 0]), "M1").ok
        == af.preflight(af.input((20000, 2)).transpose([1, 0]).transpose([1, 0]), "M1").ok
    )


@pytest.mark.parametrize(
    "make", [lambda x: af.mod(x, 3.0), lambda x: af.floor_div(x, 3.0), lambda x: af.atan2(x, 1.0)]
)
def test_a_rewritten_op_may_have_a_single_number_for_an_operand(make):
    report = af.preflight(make(af.input((2, 4))), "m1")
    assert report.ok


def test_whole_numbers_that_are_only_handed_on_are_refused():
    ids = af.input((2, 2), "int32", name="ids")
    report = af.preflight(ids, "m1")
    assert [(entry.name, entry.rule) for entry in report.reject] == [("ids", "host-op")]
    with pytest.raises(af.CompileError, match="ids: input"):
        af.compile(ids, target="m1")


def test_below_the_floor_every_op_is_refused_by_conversion_and_its_floor_decides_by_authoring():
    x = af.input((1, 8), name="x")
    out = x.rms_norm(np.ones(8)).relu()
    assert {entry.rule for entry in af.preflight(out, "h11").reject} == {"mil-floor"}
    assert {entry.rule for entry in af.preflight(out, "h11", route="direct").reject} == {"minimum-family"}
    assert af.preflight(x.relu(), "h11", route="direct").ok
    with pytest.raises(AneforgeError, match="choose one: conversion, direct"):
        af.preflight(x.relu(), "h11", route="sideways")
