"""The hardware-abstraction table: by name, by offset, by build; gates, dead fields, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aneforge.chips import Hal, all_targets, target
from aneforge.chips.hal import hal_fields
from aneforge.chips.store import load
from aneforge.errors import AneforgeError, UnknownNameError, UnknownValueError

M1 = target("h13").hal


def test_name_and_offset_read_the_same_cell():
    for field in M1.fields():
        if field.offset is not None and field.end is None:
            assert M1[field.offset] == M1[field.name] == M1[hex(field.offset)]


def test_a_dot_reads_the_value_and_brackets_the_fact():
    assert M1.max_operand_bytes == M1.read(0x1B8) == 2 * 1024 * 1024
    fact = M1[0x1B8]
    assert fact.source == ("S24", "GA")
    assert fact.confidence == "decoded"
    assert M1["MemCacheSize"].value == fact.value  # an alias the sources use


def test_capability_bytes_read_as_byte_and_one():
    assert M1.cap(0x815) is M1.has("softmax") is True
    assert M1.cap("0x81d") is M1.has("texture_engine") is False
    with pytest.raises(UnknownNameError, match="not a capability byte"):
        M1.cap(0x138)
    with pytest.raises(UnknownValueError, match="0x8bc chaining_enable of h13"):
        M1.cap(0x8BC)


def test_an_unpublished_cell_is_unknown_never_zero():
    cell = target("h14").hal["max_l2_dst_stride"]
    assert cell.value is None
    assert cell.confidence == "unknown"
    with pytest.raises(UnknownValueError, match="h14"):
        _ = target("h14").hal.max_l2_dst_stride
    assumed = target("h14").hal.assume("max_l2_dst_stride", 2097152, "the value of h13")
    assert (assumed.value, assumed.confidence) == (2097152, "inferred")
    assert assumed.note == "assumed: the value of h13"
    assert M1.assume("max_l2_dst_stride", 1, "unused").value == 2097152


def test_copied_cells_say_so():
    assert target("h13g").hal["texture_engine"].taken_from == "A13"
    assert target("h13").hal["texture_engine"].taken_from is None


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (0x1BB, "inside max_operand_bytes"),
        ("0x678", "not a table field"),
        (0xCF8, "not a table field"),
        (0xA30, "not a table field"),
        (0x938, "0x938 bytes"),
        (-8, "outside the table"),
        (0x2F0, "nearest"),
        ("max_tensor_widht", "max_tensor_width"),
        ("", "not a HAL field of build 9.509"),
        ("0xzz", "not a HAL field of build 9.509"),
    ],
)
def test_unknown_fields_and_offsets(key, told):
    with pytest.raises(UnknownNameError) as error:
        _ = M1[key]
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="texture_engine"):
        _ = M1.texture_engin
    assert "max_tensor_width" in dir(M1)


@given(st.integers(min_value=-64, max_value=0x1200))
def test_every_offset_is_answered_or_explained(offset):
    try:
        assert M1[offset].about
    except AneforgeError as error:
        assert hex(offset) in str(error)  # noqa: PT017 - either outcome is right, a crash is not


def test_offsets_belong_to_a_build():
    newer = M1.at_build("10.26.6")
    assert newer.field("max_tensor_width").offset == 0x158
    assert M1.field("max_tensor_width").offset == 0x138
    assert newer["max_tensor_width"].value == 16384
    assert newer["max_tensor_width"].confidence == "inferred"  # carried over from 9.509
    # The same number means different things in the two builds.
    assert M1.field(0x158).name == "max_tensor_depth"
    assert newer.field(0x158).name == "max_tensor_width"
    with pytest.raises(UnknownNameError, match="build"):
        Hal(target("h13"), "11.0")


def test_newer_build_values_by_target_and_range():
    assert Hal(target("h17s"), "10.26.6")[0x72B].value == 1  # stated for h17, one table for all its dies
    assert Hal(target("h16"), "10.26.6")[0x72B].value == 0
    assert target("M6").hal.build == "10.26.6"
    assert target("M6").hal[0x00C].value == 16  # "h13+"
    assert target("M6").hal[0x5F7].value == 1
    assert Hal(target("h18"), "10.26.6")[0x5F7].value == 0
    assert target("h19").hal[0x888].value == 2097152  # first of a pair
    assert target("h19").hal[0x88C].value == 2
    assert not Hal(target("h13"), "10.26.6")[0x5F7].known
    with pytest.raises(UnknownNameError, match="num_nes"):  # the core count left the table
        _ = target("M6").hal["num_nes"]


def test_newest_targets_inherit_and_say_so():
    cell = target("M6").hal["texture_engine"]
    assert (cell.value, cell.confidence, cell.taken_from, cell.conflict_id) == (1, "inferred", "h18", "U07")
    assert target("h18a").hal.texture_engine == 1
    assert target("m12").hal["max_tensor_width"].taken_from == "m11"
    assert target("M6").hal["dsid_value"].value == 12


def test_names_without_a_table():
    for name in ("h20", "h18c", "h21"):
        with pytest.raises(UnknownValueError, match="no HAL table, because no build constructs this target"):
            Hal(target(name))


def test_diff_is_symmetric_and_empty_with_itself():
    one, other = target("h13").hal, target("h17s").hal
    assert one.diff(one) == []
    there = {row.field.name: (row.left.value, row.right.value) for row in one.diff(other)}
    back = {row.field.name: (row.right.value, row.left.value) for row in other.diff(one)}
    assert there == back
    assert there["texture_engine"] == (0, 1)
    assert there["max_tensor_width"] == (16384, 65536)
    assert "softmax" not in there
    wider = one.diff(other, unknowns=True)
    assert len(wider) > len(there)
    assert not all(row.certain for row in wider)


def test_every_published_value_has_a_field_and_evidence():
    document = load("hal_values")
    layout = hal_fields()
    for offset in document["values"]:
        start = int(offset.split("..")[0], 16)
        assert layout.find(start).offset == start
    for chip in all_targets(only_28=True):
        for field in chip.hal.fields():
            cell = chip.hal[field.name]
            if cell.known:
                assert cell.source, (chip.name, field.name)
                assert cell.confidence in ("measured", "decoded", "predicted", "inferred")


def test_all_cells_of_the_matrix_are_counted():
    document = load("hal_values")
    columns = [*document["values"].values(), *document["values_without_offset"].values()]
    assert len(document["values"]) * 28 == document["meta"]["total_cells"]
    known = sum(value is not None for column in document["values"].values() for value in column["v"])
    assert known == document["meta"]["known_cells"]
    assert all(len(column["v"]) == len(column["e"]) == 28 for column in columns)
