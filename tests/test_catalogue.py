"""The catalogue of ops answers for every op of the graph language, and says what the gate says."""

from __future__ import annotations

import pytest

import aneforge as af
from aneforge.chips import Family
from aneforge.chips.ops import op_routes, op_status
from aneforge.graph.node import definitions

FAMILIES = tuple(Family)
TIERS = tuple(family for family in Family if family > Family.OLDER)
ARCHITECTURES = dict(zip(TIERS, ("h13", "h14", "h15", "h16s"), strict=True))
OPS = sorted(definitions())


def test_the_graph_language_is_all_there():
    assert len(OPS) >= 147
    assert {"sdpa", "sort", "mean", "sum", "lrn", "host", "random_uniform", "input_view"} <= set(OPS)


@pytest.mark.parametrize("name", OPS)
def test_every_op_of_the_graph_language_has_one_answer(name):
    """is_native, op_info, min_native_family, ops_on, OP_CATALOG and op_status, on every family."""
    info = af.op_info(name)
    assert af.OP_CATALOG[name] == info
    assert info["op"] == name
    statuses = {family: op_status(name, family) for family in FAMILIES}
    assert statuses[Family.OLDER] == "reject"
    assert set(info["status"]) == {family.name for family in TIERS}
    for family in FAMILIES:
        assert af.is_native(name, family) == (statuses[family] == "native")
    for family in TIERS:
        assert info["status"][family.name]["value"] == statuses[family]
        assert af.is_native(name, ARCHITECTURES[family]) == (statuses[family] == "native")
    native = [int(family) for family in FAMILIES if statuses[family] == "native"]
    assert af.min_native_family(name) == info["min_native_family"] == (min(native) if native else None)


@pytest.mark.parametrize("name", OPS)
def test_the_gate_asks_the_same_op(name):
    """A node is judged by its gate name, users ask by the op's name: both lead to one row."""
    gate = op_routes(definitions()[name].gate_name).main
    assert [op_status(name, family) for family in FAMILIES] == [gate[family].value for family in FAMILIES]


@pytest.mark.parametrize("family", FAMILIES)
def test_lists_and_questions_agree(family):
    by_status = {status: set(af.ops_on(family, status)) for status in ("native", "decompose", "reject")}
    assert sum(len(names) for names in by_status.values()) == len(af.OP_CATALOG)
    for name in af.OP_CATALOG:
        assert name in by_status[op_status(name, family)]
        assert (name in by_status["native"]) == af.is_native(name, family)


def test_the_catalogue_is_a_mapping_of_what_people_write():
    assert set(OPS) <= set(af.OP_CATALOG)
    assert "sin" in af.OP_CATALOG
    assert "convv" not in af.OP_CATALOG
    assert af.OP_CATALOG.get("convv") is None
    assert not any(name.startswith("anec.") for name in af.OP_CATALOG)
    with pytest.raises(KeyError):
        af.OP_CATALOG["convv"]


def test_the_published_matrix_stands_beside_the_answer():
    assert af.device_status("cross_product", "m1") == "bridge"
    assert af.is_native("cross_product", "m1")  # reached by direct authoring
    assert af.device_status("sum", "m1") == af.device_status("reduce_sum", "m1")
    assert af.op_info("fps")["published"] is None
    with pytest.raises(af.AneforgeError, match="fps: the published matrix has no row for this op; use op_status"):
        af.device_status("fps", "m1")


@pytest.mark.parametrize("ask", [af.op_info, af.is_native, af.min_native_family, af.device_status])
def test_an_unknown_op_is_refused_with_the_nearest(ask):
    with pytest.raises(af.AneforgeError, match="'convv': not a known operation; nearest: conv"):
        ask("convv")
