"""Properties of all targets, and the typed look-ups that need no table."""

from __future__ import annotations

import itertools

import pytest

from aneforge.chips import (
    Family,
    Family8,
    all_targets,
    axis_limit,
    backend_op,
    backend_ops,
    conflicts,
    cost_curve,
    device_info,
    generation,
    global_limit,
    image_format,
    image_formats,
    limit,
    limit_fact,
    numeric_fact,
    op_names,
    op_routes,
    op_status,
    sources,
    stream_fact,
    target,
)
from aneforge.chips.chip import FIELDS
from aneforge.chips.families import as_family, as_family8
from aneforge.chips.generations import generation_numbers
from aneforge.chips.limits import OP_CLASSES, limit_names
from aneforge.chips.ops import is_floor_met, mil_row
from aneforge.errors import AneforgeError, UnknownNameError, UnknownValueError

LADDER = [Family.A13, Family.A14, Family.A15, Family.A16]
RANK = {"reject": 0, "decompose": 1, "native": 2}
SILICON = [each for each in all_targets() if each.constructible and not each.is_reference]


def test_there_are_28_targets_and_the_newer_names():
    names = [each.name for each in all_targets(only_28=True)]
    assert len(names) == len(set(names)) == 28
    newer = {each.name for each in all_targets() if each.constructible} - set(names)
    assert newer == {"u4", "h18g", "h19", "m12", "h18a", "h18p"}


@pytest.mark.parametrize("chip", SILICON, ids=lambda chip: chip.name)
def test_every_silicon_target_has_exactly_one_of_each_family(chip):
    assert isinstance(chip.family8, Family8)
    assert isinstance(chip.family5, Family)
    assert (chip.family8 < Family8.A13) == (chip.family5 is Family.OLDER)
    # The five-tier fold follows the eight: everything above A16 folds into A16.
    assert int(chip.family5) == max(1, min(int(chip.family8), 5))


def test_reference_targets_are_in_no_family():
    for chip in all_targets():
        if chip.is_reference:
            assert chip.family5 is None
            assert chip.family8 is None


def test_every_known_value_names_a_known_source_and_conflict():
    for chip, field in itertools.product(all_targets(), FIELDS):
        found = chip[field]
        if not found.known or found.value == ():
            continue
        assert found.source, (chip.name, field)
        assert set(found.source) <= set(sources())
        assert found.confidence != "unknown"
        assert found.conflict_id is None or found.conflict_id in conflicts()


def test_capability_is_monotone_from_a13_up():
    # Chapter 26 has these units from A14 on, and an M5 refused them when they were authored (AF.caps, C12).
    rings = {"ring_buffer_writer", "anec.ring_buffer_writer", "ring_write", "tensor_to_circular_buffer"}
    refused_later = {"CropResize", "native_crop_resize", "RingBufferWriter", *rings}
    for name in set(op_names()) - refused_later:
        ranks = [RANK[op_status(name, family)] for family in LADDER]
        assert ranks == sorted(ranks), name


def test_capability_bytes_are_monotone_from_a13_up():
    generations = [target(name).hal for name in ("h13", "h14", "h15", "h16", "h17")]
    for field in generations[0].fields():
        if field.is_capability:
            seen = [table[field.name].value for table in generations]
            known = [value for value in seen if value is not None]
            assert known == sorted(known), field.name


def test_extent_limits_only_grow():
    for name in ("spatial_extent", "contraction_extent", "channel_extent", "depth_extent", "conv_kw_max"):
        values = [limit(name, family) for family in LADDER]
        assert values == sorted(values), name


def test_die_variants_of_one_generation_share_one_table():
    for base in ("h13", "h14", "h15", "h16", "h17"):
        variants = [chip for chip in all_targets(only_28=True) if chip.name.startswith(base)]
        for chip in variants[1:]:
            differing = {row.field.name for row in variants[0].hal.diff(chip.hal)}
            # Core count and clocks are the die's own.
            assert differing <= {
                "num_nes",
                "perf_mult",
                "freq_table",
                "dma_freq_table",
                "dram_freq_table",
                "eff_map",
                "eff_map_size",
            }


@pytest.mark.parametrize("name", op_names())
def test_every_op_has_a_status_on_every_family(name):
    for family in Family:
        assert op_status(name, family) in RANK
    routes = op_routes(name)
    assert routes.rule
    for status in routes.main.values():
        assert status.confidence != "unknown"
        assert status.source or status.note


def test_op_status_takes_labels_and_routes():
    assert op_status("sin", "A13") == "decompose"
    assert op_status("sin", Family.A13, route="direct") == "reject"
    assert op_status("add", 2, route="direct") == "native"
    assert op_status("cumsum", 2, route="direct") == "decompose"  # the product with a triangle is made of units
    assert op_status("cross_product", 2, route="conversion") == "native"  # a bridge in the converted program
    with pytest.raises(UnknownNameError, match="route 'side door' is unknown; choose one: conversion, direct"):
        op_status("sin", 2, route="side door")


@pytest.mark.parametrize("bad", ["convv", "", "anec.nothing", None, 7, "conv "])
def test_an_unknown_op_is_refused_not_called_native(bad):
    with pytest.raises(UnknownNameError, match="not a known operation; nearest: "):
        op_status(bad, Family.A13)


@pytest.mark.parametrize("family", [0, 6, -2, 1.5, "A17", "", None])
def test_a_family_out_of_range_is_refused(family):
    with pytest.raises(AneforgeError, match="family"):
        op_status("conv", family)
    with pytest.raises(AneforgeError, match="family"):
        limit("max_tensor_dim", family)


def test_families_by_label():
    assert as_family("a14") is Family.A14
    assert as_family8("A17") is Family8.A17
    for bad in (8, -1, "A19"):
        with pytest.raises(AneforgeError, match="compiler family"):
            as_family8(bad)


def test_the_floor_gate_is_listing_24_2():
    for op, family in itertools.product(backend_ops(), Family8):
        assert is_floor_met(op.name, family) == (int(family) >= op.floor.value)
    assert backend_op("sin").native_on(Family8.A17)
    assert not backend_op("anec.sin").native_on(Family8.A13)
    with pytest.raises(UnknownNameError, match=r"anec\.sin"):
        backend_op("sinn")


def test_all_187_matrix_ops_are_known():
    assert sum(1 for name in op_names() if mil_row(name) is not None) == 187


def test_limits_by_class_and_axis():
    assert axis_limit("spatial", "width", Family.A13).value == 16384
    assert axis_limit("spatial", "channel", Family.A13).value == 65536
    assert axis_limit("contraction", "contraction", Family.A16).value == 65536
    assert axis_limit("contraction", "contraction", Family.A16).losers[0].value == 32768  # M4 through Core ML, C14
    assert axis_limit("transpose", "height", Family.A14).value == 2**23 - 1
    assert axis_limit("conv_kernel", "width", Family.A16).value == 15
    for op_class, axes in OP_CLASSES.items():
        for axis, family in itertools.product(axes, LADDER):
            assert axis_limit(op_class, axis, family).known, (op_class, axis, family)
    with pytest.raises(UnknownNameError, match="op class"):
        axis_limit("spatail", "width", Family.A13)
    with pytest.raises(UnknownNameError, match="axis"):
        axis_limit("pool_window", "channel", Family.A13)


def test_unmeasured_kernel_width_is_a_labelled_choice():
    found = limit_fact("conv_kw_max", Family.A14)
    assert (found.value, found.confidence, found.conflict_id) == (13, "inferred", "U01")
    assert [loser.value for loser in found.losers] == [16]


def test_unpublished_limits_are_unknown_not_zero():
    found = limit_fact("transpose_extent", Family.OLDER)
    assert not found.known
    assert found.confidence == "unknown"
    with pytest.raises(UnknownValueError, match="not published"):
        limit("transpose_extent", Family.OLDER)
    with pytest.raises(UnknownNameError, match="max_tensor_dim"):
        limit("max_tensor_dims", Family.A13)
    assert set(limit_names()) >= {"max_tensor_dim", "channel_extent", "transpose_extent", "conv_kw_max"}


def test_global_limits():
    assert global_limit("rank_max").value == 5
    with pytest.raises(UnknownNameError, match="rank_max"):
        global_limit("rank_maximum")


def test_image_formats_per_tier():
    counts = {"h11": 0, "h13": 3, "h14g": 13, "h15": 16, "h16s": 14, "h17d": 14, "h18g": 14, "m11": 16, "u1": 0}
    for name, count in counts.items():
        formats = image_formats(target(name))
        assert formats.count.value == count == target(name).hal["interchange_count"].value, name
        assert len(formats.formats) <= count
        assert (len(formats.formats) < count) == (formats.unlisted is not None)
    assert [each.tag for each in image_formats(target("M1")).formats] == ["&BGA", "&L0h", "&L16"]


def test_yuv_input_is_a15_and_m11_only():
    takers = {chip.name for chip in all_targets(only_28=True) if image_formats(chip).accepts("&8f0")}
    assert takers == {"h15", "h15g", "h15c", "m11"}
    assert image_formats(target("M5")).accepts("&8v0") is False
    assert image_formats(target("M2")).accepts("-BGA") is None  # counted, but not listed by name


def test_image_format_layout():
    bgra = image_format("&BGA")
    assert bgra.four_character_code == 0x26424741
    assert (bgra.code, bgra.mode) == (0x11, 0)
    assert [(plane.channels, plane.element) for plane in bgra.planes.value] == [(4, "uint8")]
    luma, chroma = image_format("&8v0").planes.value
    assert (luma.channels, luma.width_divisor) == (1, 1)
    assert (chroma.channels, chroma.width_divisor, chroma.height_divisor) == (2, 2, 2)
    assert bgra.packing.conflict_id == "U11"
    for bad in ("BGA", "&BGR", "", "&&&&"):
        with pytest.raises(UnknownNameError, match="not an image format; nearest: "):
            image_format(bad)


def test_streaming_formats():
    assert stream_fact("int4", Family.A13).value == "stream"
    assert stream_fact("int8_affine", Family.A13).value == "fold"
    assert stream_fact("blockwise", Family.A15).confidence == "predicted"
    assert not stream_fact("sparse", Family.OLDER).known
    with pytest.raises(UnknownNameError, match="'int5': not a weight encoding; nearest: int8"):
        stream_fact("int5", Family.A13)


def test_cost_curves():
    m1 = cost_curve(target("h13"))
    assert m1.confidence == "decoded"
    assert m1.value.max_mhz == 1428
    assert m1.value.effective(1142.4) == pytest.approx(m1.value.effective_mhz)
    pro = cost_curve(target("M5 Pro")).value
    assert pro.effective(pro.operating_mhz) == pytest.approx(pro.effective_mhz, rel=1e-3)
    assert pro.effective(pro.ne_mhz[0]) == pro.ne_to_l2_mhz[0][1]
    stand_in = cost_curve(target("M2"))
    assert (stand_in.taken_from, stand_in.confidence, stand_in.conflict_id) == ("h14", "inferred", "C28")
    assert not cost_curve(target("u1")).known
    assert not cost_curve(target("h12")).known


@pytest.mark.parametrize("size", [-1, float("nan")])
def test_device_info_refuses_impossible_sizes(size):
    with pytest.raises(AneforgeError, match="size"):
        device_info(Family8.A13).bandwidth_clamp(size)


def test_generations():
    assert generation(7).patch_width_offset.value == 0x200
    assert not generation(24).patch_width_offset.known
    assert {chip.td_generation for chip in SILICON if chip.td_generation} <= set(generation_numbers())
    with pytest.raises(UnknownNameError, match="generation 9"):
        generation(9)


def test_numeric_facts_by_id():
    found = numeric_fact("N18")
    assert found.value["limit"] == 4094
    assert found.confidence == "measured"
    with pytest.raises(UnknownNameError, match="'N999': not a numeric fact"):
        numeric_fact("N999")


def test_a_target_field_that_does_not_exist():
    with pytest.raises(UnknownNameError, match="td_generation"):
        target("h13")["td_gen"]


def test_results_print_and_serialise():
    import json

    chip = target("h16")
    assert str(chip["hardware_version"]) == "7 [measured: G35, M6.hwx, FT.map; C01, not 8]"
    for record in (
        chip.to_json(),
        chip.hal.to_json(),
        op_routes("topk").to_json(),
        backend_op("sdpa").to_json(),
        image_formats(chip).to_json(),
        device_info(Family8.A16).to_json(),
        generation(17).to_json(),
    ):
        assert json.loads(json.dumps(record))
